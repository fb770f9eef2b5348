"""What nodes store and send.

graphs     who is linked with whom, and combination weights
exchange   how often, what is sent, how it is mixed: compression, robust rules, attacks
state      what nodes remember, as arrays by name
sums       sums of rows that travel
banks      a network of single learners; node, corrections, sharing: what one is and shares
"""
