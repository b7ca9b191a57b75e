// The page: asks for the models, makes a tab for each verb that they have, asks for a key.

import { Client, reason } from "./client.js";
import { button } from "./dom.js";
import { Panel } from "./panel.js";
import { VERBS } from "./verbs.js";

const byId = (id) => document.getElementById(id);
const client = new Client(askKey);
const panels = new Map();

function askKey(isRejected) {
  const [dialog, form, field] = [byId("key-dialog"), byId("key-form"), byId("key")];
  byId("key-title").textContent = isRejected
    ? "The service did not accept this key"
    : "This service asks for a key";
  return new Promise((resolve) => {
    const close = (key) => {
      form.onsubmit = dialog.oncancel = byId("key-cancel").onclick = null;
      field.value = "";
      dialog.close();
      resolve(key);
    };
    form.onsubmit = (event) => {
      event.preventDefault();
      if (field.value.trim() !== "") close(field.value.trim());
    };
    dialog.oncancel = (event) => {
      event.preventDefault();
      close(null);
    };
    byId("key-cancel").onclick = () => close(null);
    dialog.showModal();
  });
}

function notify(message, retry = null) {
  byId("notice").replaceChildren(message, " ", ...(retry ? [button("Try again", retry)] : []));
  byId("notice").hidden = false;
}

function select(verb, hasFocus = false) {
  for (const [each, panel] of panels) {
    const isSelected = each === verb;
    const tab = byId(`tab-${each}`);
    tab.setAttribute("aria-selected", String(isSelected));
    tab.tabIndex = isSelected ? 0 : -1;
    panel.element.hidden = !isSelected;
    if (isSelected && hasFocus) tab.focus();
    if (isSelected) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  history.replaceState(null, "", `#${verb}`);
}

function selected() {
  return [...panels.keys()].find((verb) => !panels.get(verb).element.hidden);
}

// The same text, layer by layer.
function openLayers(model, values) {
  select("layers", true);
  panels.get("layers").ask(model, values);
}

function moveTab(event) {
  const verbs = [...panels.keys()];
  const current = verbs.indexOf(selected());
  const target = {
    ArrowRight: (current + 1) % verbs.length,
    ArrowLeft: (current - 1 + verbs.length) % verbs.length,
    Home: 0,
    End: verbs.length - 1,
  }[event.key];
  if (target === undefined) return;
  event.preventDefault();
  select(verbs[target], true);
}

function build(models) {
  // models with exits have more layers to show; any model embeds, those tuned for it do it well
  const first = { layers: "exits", embed: "tuned_to_embed" };
  const ableTo = (verb) => {
    const able = models.filter((model) => model.verbs.includes(VERBS[verb].needs ?? verb));
    return verb in first ? able.toSorted((a, b) => b[first[verb]] - a[first[verb]]) : able;
  };
  const verbs = Object.keys(VERBS).filter((verb) => ableTo(verb).length > 0);
  if (verbs.length === 0) {
    byId("facts").textContent = "";
    notify("The service has no model that this page can use.");
    return;
  }
  byId("facts").textContent = models.map(({ id }) => id).join(" · ");
  for (const verb of verbs) {
    panels.set(verb, new Panel(verb, ableTo(verb), client, openLayers));
    const attributes = { id: `tab-${verb}`, role: "tab", "aria-controls": `panel-${verb}` };
    byId("tabs").append(button(VERBS[verb].title, () => select(verb), attributes));
    byId("panels").append(panels.get(verb).element);
  }
  byId("tabs").hidden = false;
  byId("tabs").addEventListener("keydown", moveTab);
  const wanted = location.hash.slice(1);
  select(panels.has(wanted) ? wanted : verbs[0]);
}

async function begin() {
  byId("notice").hidden = true;
  try {
    const { data } = await client.models();
    build(data.data);
  } catch (error) {
    byId("facts").textContent = "";
    notify(reason(error), begin);
  }
}

// A file may be dropped anywhere; where the tab reads no tables, the first that does is shown.
const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
addEventListener("dragover", (event) => {
  if (!hasFiles(event)) return;
  event.preventDefault();
  document.body.classList.add("dropping");
});
addEventListener("dragleave", (event) => {
  if (event.relatedTarget === null) document.body.classList.remove("dropping");
});
addEventListener("drop", (event) => {
  if (!hasFiles(event)) return;
  event.preventDefault();
  document.body.classList.remove("dropping");
  const [file] = event.dataTransfer.files;
  const able = [...panels.keys()].filter((verb) => panels.get(verb).file);
  if (able.length === 0) {
    notify("None of the loaded models labels tables.");
    return;
  }
  const verb = able.includes(selected()) ? selected() : able[0];
  select(verb);
  panels.get(verb).file.open(file);
  panels.get(verb).file.element.scrollIntoView({ block: "nearest" });
});
addEventListener("hashchange", () => {
  const wanted = location.hash.slice(1);
  if (panels.has(wanted)) select(wanted);
});

begin();
