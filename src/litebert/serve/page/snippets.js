// A request as a command and as a program. The key is never written into either.

const KEY_NAME = "LITEBERT_KEY";

export function asCurl(url, body, needsKey) {
  const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
  const lines = [`curl ${quoted(url)}`, `  -H 'Content-Type: application/json'`];
  if (needsKey) lines.push(`  -H "Authorization: Bearer $${KEY_NAME}"`);
  lines.push(`  -d ${quoted(JSON.stringify(body))}`);
  return lines.join(" \\\n") + "\n";
}

export function asPython(url, body, needsKey) {
  // a JSON text without true, false and null is a Python literal
  const key = needsKey
    ? `    "Authorization": f"Bearer {os.environ['${KEY_NAME}']}",\n`
    : "";
  return `import json
${needsKey ? "import os\n" : ""}import urllib.request

body = ${JSON.stringify(body, null, 4)}
headers = {
    "Content-Type": "application/json",
${key}}
request = urllib.request.Request(
    ${JSON.stringify(url)}, json.dumps(body).encode(), headers
)
with urllib.request.urlopen(request) as response:
    print(json.dumps(json.load(response), indent=2))
`;
}
