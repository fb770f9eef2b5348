"""What a live network is doing, seen from outside: a table in the terminal, or one web page.

It reads every agent's `GET /status` and never writes. `collect` polls and keeps bounded
histories, `status` checks what an agent says before anyone sees it, `layout` places the nodes,
`terminal` and `web` show the same `View`.
"""
