"use strict";
// The token is kept in this tab only: in memory and sessionStorage. It is taken out of the address at once.
const $ = (id) => document.getElementById(id);
const KEY = "penstock-token";
let timer = null;

function token() { return sessionStorage.getItem(KEY); }

function fromAddress() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem(KEY, given);
    history.replaceState(null, "", location.pathname);
  }
}

async function ask(path) {
  const response = await fetch(path, { headers: { Authorization: "Bearer " + token(), Accept: "application/json" } });
  const told = await response.json().catch(() => ({}));
  if (!response.ok) {
    const error = new Error([told.detail || response.statusText, told.hint].filter(Boolean).join("; "));
    error.status = response.status;
    throw error;
  }
  return told;
}

function table(where, head, rows, empty) {
  const place = $(where);
  if (!rows.length) {
    const p = document.createElement("p");
    p.textContent = empty;
    place.replaceChildren(p);
    return;
  }
  const made = document.createElement("table");
  const top = made.createTHead().insertRow();
  for (const name of head) {
    const th = document.createElement("th");
    th.scope = "col";
    th.textContent = name;
    top.append(th);
  }
  const body = made.createTBody();
  for (const row of rows) {
    const tr = body.insertRow();
    for (const value of row) tr.insertCell().textContent = value ?? "";
  }
  place.replaceChildren(made);
}

const objects = (of) => of.rows.map((row) => Object.fromEntries(of.columns.map((c, i) => [c.name, row[i]])));
const whole = (number) => number === null ? null : Math.round(number).toLocaleString("en");
const columns = (of) => of.columns.map((c) => c.name + " " + c.type).join(", ");

async function show() {
  try {
    const me = await ask("/api/me");
    const [queries, streams, relations, parts] = await Promise.all(
      [ask("/api/queries"), ask("/api/streams"), ask("/api/relations"), ask("/api/sys/parts")]);
    $("who").textContent = me.user + (me.admin ? " (administrator)" : "");
    const failed = queries.queries.filter((q) => q.status === "failed").length;
    $("health").textContent = "penstock " + me.version + ", " + me.status + (failed ? ", failed queries: " + failed : "");
    table("queries", ["name", "status", "results", "text", "note"], queries.queries.map(
      (q) => [q.name, q.status, q.next, q.text, q.how || q.note]), "No query runs here that you may read.");
    $("parted").hidden = !parts.rows.length;
    table("parts", ["part", "queries", "priority", "rows/s", "answers/s", "last micro-batch", "entries waiting", "rows"],
      objects(parts).map((p) => [p.part, p.queries, p.priority, whole(p.rows_per_second), whole(p.answers_per_second),
        p.seconds === null ? "none yet" : p.seconds.toFixed(2) + " s", p.waiting, whole(p.waiting_rows)]), "");
    table("streams", ["name", "rows", "late", "columns"], streams.streams.map(
      (s) => [s.name, s.given, s.late, columns(s)]), "There is no stream that you may read.");
    table("relations", ["name", "rows", "columns"], relations.relations.map(
      (r) => [r.name, r.rows, columns(r)]), "There is no relation that you may read.");
    inside(true, me);
  } catch (error) {
    if (error.status === 401) {
      sessionStorage.removeItem(KEY);
      inside(false);
      $("wrong").textContent = error.message;
    } else {
      $("health").textContent = "The server does not answer: " + error.message;
    }
  }
}

function connecting(user, ports) {
  const base = location.origin, host = location.hostname, port = (of) => of === null ? "(off)" : of || "PORT";
  $("curl").textContent =
    `curl -N -H "Authorization: Bearer $TOKEN" ${base}/api/queries/NAME/answers\n` +
    `curl -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" \\\n` +
    `  -d '[{"COLUMN": 1}]' ${base}/api/streams/NAME/rows`;
  $("psql").textContent = `PGPASSWORD=$TOKEN psql -h ${host} -p ${port(ports.postgres)} -U ${user}`;
  $("python").textContent = `import penstock\ndb = penstock.connect("${base}", token="TOKEN")`;
  $("adbc").textContent =
    `import adbc_driver_flightsql.dbapi as adbc\n` +
    `connection = adbc.connect("grpc://${host}:${port(ports.flight)}", db_kwargs={"username": "${user}", "password": "TOKEN"})`;
  $("shell").textContent = `PENSTOCK_TOKEN=$TOKEN penstock sql --connect ${base}`;
}

function inside(yes, me) {
  $("login").hidden = yes;
  for (const id of ["inside", "who", "out"]) $(id).hidden = !yes;
  if (yes) connecting(me.user, me.ports);
  clearTimeout(timer);
  if (yes) timer = setTimeout(show, 5000);
}

$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, $("token").value.trim());
  $("token").value = "";
  $("wrong").textContent = "";
  show();
});
$("out").addEventListener("click", () => { sessionStorage.removeItem(KEY); inside(false); });
addEventListener("hashchange", () => { fromAddress(); if (token()) show(); });

fromAddress();
if (token()) show(); else inside(false);
