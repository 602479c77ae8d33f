"use strict";
const place = document.getElementById("endpoints"), state = document.getElementById("state");

function add(parent, tag, text) {
  const made = document.createElement(tag);
  made.textContent = text;
  parent.append(made);
  return made;
}

function kinds(content) { return Object.keys(content || {}).join(", "); }

function show(document_) {
  for (const [path, methods] of Object.entries(document_.paths)) {
    for (const [method, entry] of Object.entries(methods)) {
      const section = add(place, "section", "");
      add(section, "h2", method.toUpperCase() + " " + path).id = entry.operationId;
      add(section, "p", entry.summary + "." + (entry.description ? " " + entry.description : ""));
      const list = add(section, "ul", "");
      for (const p of entry.parameters || []) {
        add(list, "li", p.name + " (" + p.in + ")" + (p.description ? ": " + p.description : ""));
      }
      if (entry.requestBody) add(list, "li", "body: " + kinds(entry.requestBody.content));
      for (const [status, told] of Object.entries(entry.responses)) {
        if (status < 400) add(list, "li", status + ": " + told.description + (told.content ? " (" + kinds(told.content) + ")" : ""));
      }
    }
  }
  const schemas = add(place, "section", "");
  add(schemas, "h2", "Schemas");
  add(schemas, "pre", JSON.stringify(document_.components.schemas, null, 2));
}

async function load() {
  const token = sessionStorage.getItem("penstock-token");
  if (!token) return;
  const response = await fetch("/api/openapi.json", { headers: { Authorization: "Bearer " + token } });
  if (!response.ok) return;
  state.hidden = true;
  show(await response.json());
}

load();
