// Ask a model behind HTTP from JavaScript: node http_model.js http://127.0.0.1:8080 ROWS
// ROWS: a JSON list of objects, one for each row. The same code runs in a browser.
const [address, rows] = process.argv.slice(2);

const answer = await fetch(`${address}/predict?intervals=true`, {
  method: "POST",
  headers: { "Content-Type": "application/json" },
  body: rows,
});
if (!answer.ok) throw new Error(`${answer.status}: ${await answer.text()}`);
console.log(JSON.stringify(await answer.json()));
