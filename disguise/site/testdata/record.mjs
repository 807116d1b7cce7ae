// Makes site.har, and http2.har, http2.pcap and http2.keys: Chromium visits a small site twice. Run it where playwright-core is installed;
// for HTTP/2 as root, with tcpdump and openssl:
//
//     NODE_PATH=... node record.mjs CHROMIUM site
//     NODE_PATH=... node record.mjs CHROMIUM http2 h2
import { createRequire } from "node:module";
import child from "node:child_process";
import http from "node:http";
import http2 from "node:http2";
import crypto from "node:crypto";
import zlib from "node:zlib";
import fs from "node:fs";

const { chromium } = createRequire(process.env.NODE_PATH + "/")("playwright-core");

// An RGBA picture: a disc on a transparent ground.
function chunk(type, data) {
  const body = Buffer.concat([Buffer.from(type), data]);
  const out = Buffer.alloc(body.length + 8);
  out.writeUInt32BE(data.length, 0);
  body.copy(out, 4);
  out.writeUInt32BE(zlib.crc32(body), body.length + 4);
  return out;
}
function disc(size) {
  const rows = [];
  for (let y = 0; y < size; y++) {
    const row = Buffer.alloc(1 + size * 4);
    row[0] = y % 5; // each filter of PNG
    for (let x = 0; x < size; x++) {
      const inside = (x - size / 2) ** 2 + (y - size / 2) ** 2 < (size / 3) ** 2;
      if (inside && row[0] === 0) row.set([200, 40, 40, 255], 1 + x * 4);
      else if (inside) row.set([3, 1, 0, 0], 1 + x * 4);
    }
    rows.push(row);
  }
  const head = Buffer.alloc(13);
  head.writeUInt32BE(size, 0);
  head.writeUInt32BE(size, 4);
  head.set([8, 6, 0, 0, 0], 8);
  return Buffer.concat([Buffer.from("\x89PNG\r\n\x1a\n", "latin1"), chunk("IHDR", head), chunk("IDAT", zlib.deflateSync(Buffer.concat(rows))),
    chunk("IEND", Buffer.alloc(0))]);
}

const icon = disc(24), picture = disc(64);
const token = (n) => crypto.randomBytes(n).toString("base64");
function page(title) {
  const state = { user: null, cursor: crypto.randomBytes(48).toString("base64url") + "-_", items: [1, 2, 3], etag: crypto.randomBytes(16).toString("hex") };
  return `<!doctype html><html><head><meta charset="utf-8"><title>${title}</title><link rel="stylesheet" href="/style.css">
<script src="/app.js" defer></script></head><body><h1>${title}</h1><a href="/">home</a> <a href="/about">about</a>
<img src="/disc.png?u=1" alt=""><img src="data:image/png;base64,${icon.toString("base64")}" alt="">
<form method="post"><input type="hidden" name="state" value="+/${token(600)}"><input name="q"></form>
<script id="state" type="application/json">${JSON.stringify(state)}</script></body></html>`;
}
const answers = {
  "/": () => ["text/html; charset=utf-8", page("Home"), { "Cache-Control": "private, no-cache", "Set-Cookie": `session=${crypto.randomBytes(16).toString("hex")}; Path=/; HttpOnly` }],
  "/about": () => ["text/html; charset=utf-8", page("About"), { "Cache-Control": "private, no-cache" }],
  "/style.css": () => ["text/css", `body{background:url(data:image/png;base64,${icon.toString("base64")}) no-repeat}`, { "Cache-Control": "public, max-age=3600", ETag: '"s1"' }],
  "/app.js": () => ["text/javascript", `fetch("/api/feed").then(r=>r.json()).then(f=>{document.body.dataset.n=f.items.length});`, { "Cache-Control": "public, max-age=3600" }],
  "/disc.png?u=1": () => ["image/png", picture, { "Cache-Control": "private, max-age=0" }],
  "/api/feed": () => ["application/json", JSON.stringify({ items: [...Array(8).keys()].map((id) => ({ id, ref: "+/" + token(60) })) }), { "Cache-Control": "no-store" }],
};
const [, , program, name, version] = process.argv;
function serve(request, response) {
  const answer = answers[request.url];
  if (!answer) return response.writeHead(404, { "Content-Type": "text/plain" }).end("no such page\n");
  const [type, body, headers] = answer();
  if (version && type.startsWith("text/"))
    return response.writeHead(200, { "Content-Type": type, "Content-Encoding": "br", ...headers }).end(zlib.brotliCompressSync(body));
  response.writeHead(200, { "Content-Type": type, ...headers }).end(body);
}
function certificate() {
  child.execFileSync("openssl", "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=site -days 1 -keyout site.key -out site.crt".split(" "), { stdio: "ignore" });
  const made = { key: fs.readFileSync("site.key"), cert: fs.readFileSync("site.crt") };
  fs.rmSync("site.key");
  fs.rmSync("site.crt");
  return made;
}
const server = version ? http2.createSecureServer(certificate(), serve) : http.createServer(serve);
await new Promise((done) => server.listen(8016, "127.0.0.1", done));
const args = ["--no-sandbox", "--disable-quic"];
let tcpdump;
if (version) {
  args.push(`--ssl-key-log-file=${name}.keys`);
  tcpdump = child.spawn("tcpdump", ["-i", "lo", "-w", name + ".pcap", "-U", "-Z", "root", "tcp port 8016"]);
  await new Promise((done) => tcpdump.stderr.once("data", done));
}
const browser = await chromium.launch({ executablePath: program, args });
const context = await browser.newContext({ ignoreHTTPSErrors: true, recordHar: { path: name + ".har", content: "embed", mode: "full" } });
for (const path of ["/", "/about", "/"]) {
  const tab = await context.newPage();
  if (version) await (await context.newCDPSession(tab)).send("Network.setCacheDisabled", { cacheDisabled: true });
  await tab.goto((version ? "https" : "http") + "://127.0.0.1:8016" + path, { waitUntil: "networkidle" });
  await tab.close();
}
await context.close();
await browser.close();
server.close();
if (tcpdump) {
  await new Promise((done) => setTimeout(done, 1000)); // the kernel hands over what it holds
  tcpdump.kill("SIGINT");
}
