// What every page does with JavaScript: live panels, relative times, keyboard, notes and dialogs.
// Pages are read without it. Texts from the server or the user are set as text, never as HTML.

import { notifies, offer, tell, told } from "./notify.js";

export const base = document.body.dataset.base;
export const texts = JSON.parse(document.body.dataset.texts);
let skew = Number(document.body.dataset.now) - Date.now();

/** Now by the ledger's clock, as of the latest answer. */
export const now = () => Date.now() + skew;

/** Puts values into the places `{}` of a text, in order. */
export const fill = (text, ...values) => text.split("{}").reduce((all, part, index) => all + values[index - 1] + part);

/** Creates an element with attributes and children. A text child stays text. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value != null) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// ---- Times, in the zone of the page, which its footer says

const { zone } = document.body.dataset;
const PARTS = { timeZone: zone, hourCycle: "h23", year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit" };
const calendar = new Intl.DateTimeFormat("en-CA", PARTS);

/** A time on the clock of the zone, as an input `datetime-local` has it: `2026-11-21T20:00:00`. */
export function clock(ms) {
  const { year, month, day, hour, minute, second } = Object.fromEntries(calendar.formatToParts(ms).map(({ type, value }) => [type, value]));
  return `${year}-${month}-${day}T${hour}:${minute}:${second}`;
}

/** When the clock of the zone shows this. */
export function moment(text) {
  const wanted = Date.parse(`${text}Z`);
  const ahead = (ms) => Date.parse(`${clock(ms)}Z`) - Math.floor(ms / 1000) * 1000;
  // The second look is for a change of the clock in between.
  return wanted - ahead(wanted - ahead(wanted));
}

/** A time on the clock as the pages of the server write it: with the date unless it is today. */
export function written(ms) {
  const [date, time] = clock(ms).split("T");
  return date === clock(now()).split("T")[0] ? time : `${date} ${time}`;
}

/** `2 h 5 min`: the two largest units. */
export function length(ms) {
  let left = Math.floor(ms / 1000);
  const units = [[texts.day, 86400], [texts.hour, 3600], [texts.minute, 60], [texts.second, 1]];
  const largest = units.findIndex(([, seconds]) => left >= seconds);
  const parts = [];
  for (const [text, seconds] of units.slice(largest < 0 ? 3 : largest)) {
    if (parts.length === 2 || (parts.length && left < seconds)) break;
    parts.push(fill(text, Math.floor(left / seconds)));
    left %= seconds;
  }
  return parts.join(" ");
}

function relative(at) {
  const ms = at - now();
  if (Math.abs(ms) < 1000) return texts.now;
  return fill(ms > 0 ? texts.ahead : texts.ago, length(Math.abs(ms)));
}

function tick() {
  for (const time of document.querySelectorAll("time[data-relative]")) {
    const text = relative(Number(time.dataset.at));
    if (time.textContent !== text) time.textContent = text;
  }
}

// ---- Panels

/** What a node is: a row has a key. */
const identity = (node) => [node.nodeType, node.nodeName, node.id ?? "", node.dataset?.key ?? ""].join("\n");

/** Makes `old` equal to `wanted` and keeps what stays: focus, selection, open details, scroll positions, rows by their keys. */
function morph(old, wanted) {
  const later = [...wanted.childNodes];
  const keys = new Set(later.map((next) => next.dataset?.key));
  const keyed = new Map([...old.children].filter((row) => row.dataset.key).map((row) => [row.dataset.key, row]));
  let at = old.firstChild;
  for (const next of later) {
    const known = keyed.get(next.dataset?.key);
    // What has gone before a known row is removed, so that the row stays where it is in the tree, and keeps the focus.
    while (known && at && at !== known && !keys.has(at.dataset?.key ?? "")) {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
    if (known && known !== at) old.insertBefore(known, at);
    else if (!at || identity(at) !== identity(next)) {
      old.insertBefore(document.importNode(next, true), at);
      continue;
    }
    const same = known ?? at;
    if (same === at) at = at.nextSibling;
    if (same.nodeType !== Node.ELEMENT_NODE) {
      if (same.data !== next.data) same.data = next.data;
      continue;
    }
    if (same.isEqualNode(next)) continue;
    const isHere = same.classList.contains("here");
    for (const { name } of [...same.attributes]) if (!next.hasAttribute(name) && name !== "open") same.removeAttribute(name);
    for (const { name, value } of next.attributes) if (same.getAttribute(name) !== value) same.setAttribute(name, value);
    if (isHere) same.classList.add("here");
    if (!same.hasAttribute("data-keep")) morph(same, next);
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

// A row that moves under the pointer is not what was aimed at: for a moment, it takes no click.

const UNSEEN = 700;
let pointer = [-1, -1];
const under = () => document.elementFromPoint(...pointer)?.closest("tr");
addEventListener("pointermove", ({ clientX, clientY }) => { pointer = [clientX, clientY]; }, { passive: true });

/** Changes a panel. Notes when another row has come under the pointer. */
function change(panel, wanted) {
  const before = panel.contains(under()) && under();
  morph(panel, wanted);
  if (before && under() !== before) panel.dataset.moved = Date.now();
}

document.addEventListener("click", (event) => {
  const panel = event.target.closest("[data-moved]");
  // A click of the keyboard is at no place.
  if (!panel || event.detail === 0 || Date.now() - panel.dataset.moved > UNSEEN) return;
  event.preventDefault();
  event.stopImmediatePropagation();
}, { capture: true });

/** Shortest time between two loads of a panel: hints may come faster. */
const REST = 1500;

async function load(panel) {
  if (panel.dataset.loading) {
    panel.dataset.again = "yes";
    return;
  }
  panel.dataset.loading = "yes";
  try {
    const answer = await fetch(panel.dataset.panel, { headers: { accept: "text/html" }, signal: AbortSignal.timeout(10000) });
    if (answer.status === 401) return location.reload();
    if (!answer.headers.get("content-type")?.startsWith("text/html")) throw new Error(answer.statusText);
    if (answer.headers.has("lapsed-now")) skew = Number(answer.headers.get("lapsed-now")) - Date.now();
    // Parsed apart from the page: its scripts, if there were any, would not run.
    const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
    isOffline = false;
    if (answer.status >= 500 && !panel.querySelector(":scope > .failed")) {
      // What was there is old, but better than nothing.
      stale(panel, parsed.querySelector(".failed strong")?.textContent);
      trouble();
      return;
    }
    fresh(panel);
    change(panel, parsed.body);
    panel.dataset.at = now();
    panel.classList.toggle("behind", answer.status >= 500);
    panel.dispatchEvent(new Event("loaded", { bubbles: true }));
    told(shared, panel);
    tick();
  } catch {
    stale(panel);
    isOffline = true;
  } finally {
    show();
    setTimeout(rested, REST, panel);
  }
}

function rested(panel) {
  const { again } = panel.dataset;
  delete panel.dataset.loading;
  delete panel.dataset.again;
  if (again && panel.isConnected) load(panel);
}

function fresh(panel) {
  panel.classList.remove("stale");
  panel.querySelector(":scope > .since")?.remove();
}

/** Dims what a panel shows, and says since when it is old, and why if that is known. */
function stale(panel, why) {
  const at = written(Number(panel.dataset.at ?? now()));
  const text = [why, fill(texts.stale, at)].filter(Boolean).join(" · ");
  if (panel.querySelector(":scope > .since")?.textContent === text) return;
  fresh(panel);
  panel.classList.add("stale");
  panel.prepend(element("p", { class: "since", role: "status" }, text));
}

/** Has the page say at once what is wrong. */
function trouble() {
  const state = document.getElementById("panel-state");
  if (state && !state.dataset.loading) load(state);
}

/** Looks at the state of the installation, also in a hidden window. */
function watch() {
  const state = document.querySelector("#panel-state, #panel-verdict");
  if (state) load(state);
}

/** Loads the panels again that show one of these; all without an argument. */
export function refresh(changed) {
  for (const panel of document.querySelectorAll("[data-panel]")) {
    const shows = panel.dataset.shows.split(" ");
    if (!changed || changed.some((name) => shows.includes(name))) load(panel);
  }
}

// ---- Live: hints from the daemon, and a look every ten seconds for what has no hint

const live = document.getElementById("live");
const POLL = 10000;
// Older browsers, and those of phones, have a stream for each window.
const shared = window.SharedWorker && new SharedWorker(document.body.dataset.hints);
let source, poll, isOffline = false, paused = sessionStorage.getItem("lapsed-paused") === "yes";

function connect() {
  disconnect();
  if (!paused && document.hidden && notifies()) poll = setInterval(watch, POLL);
  if (paused || document.hidden || !document.querySelector("[data-panel]")) return show();
  const address = new URL(`${base}/v1/events`, location).href;
  if (shared) {
    shared.port.postMessage({ address });
  } else {
    source = new EventSource(address);
    source.addEventListener("changed", ({ data }) => refresh(JSON.parse(data)));
  }
  poll = setInterval(() => refresh(), POLL);
  show();
}

function disconnect() {
  shared?.port.postMessage({});
  source?.close();
  clearInterval(poll);
}

addEventListener("pagehide", disconnect);

function show() {
  const isBehind = isOffline || document.querySelector("[data-panel]:is(.stale, .behind)") !== null;
  live.hidden = !document.querySelector("[data-panel]:not(#panel-state)");
  live.setAttribute("aria-pressed", String(!paused));
  live.classList.toggle("offline", isBehind && !paused);
  live.classList.toggle("off", paused);
  mark();
  live.querySelector("[data-live-text]").textContent = paused ? texts.paused : isOffline ? texts.offline : isBehind ? texts.behind : texts.live;
}

if (shared) shared.port.onmessage = ({ data: { changed, notify } }) => (notify ? tell() : refresh(changed));
offer(shared, () => note(texts.notify_refused, { bad: true }));

// ---- What the tab says: the title and the icon have the state of the installation

const title = document.title;
const icon = document.querySelector("link[rel=icon]");
const plain = icon.href;

function mark() {
  const { state, says } = document.querySelector("[data-state]")?.dataset ?? {};
  const [kind, text] = isOffline ? ["bad", texts.offline] : [state, says];
  const isTrouble = kind === "bad" || kind === "warning";
  document.title = isTrouble ? `(!) ${text} · ${title}` : title;
  icon.href = isTrouble ? plain.replace("icon.svg", `icon-${kind}.svg`) : plain;
}

function pause(so) {
  paused = so;
  sessionStorage.setItem("lapsed-paused", so ? "yes" : "no");
  connect();
  if (!so) refresh();
}

live.addEventListener("click", () => pause(!paused));
document.addEventListener("visibilitychange", () => {
  connect();
  if (!document.hidden && !paused) refresh();
});

// ---- Notes and dialogs

/** Shows a note for some seconds, longer with a button: `{ text, press }`. */
export function note(text, { bad = false, button } = {}) {
  const shown = element("div", { class: bad && "bad" }, element("span", {}, text));
  const close = () => shown.remove();
  if (button) shown.append(element("button", { type: "button", click: () => { close(); button.press(); } }, button.text));
  if (bad) shown.append(element("button", { type: "button", click: close }, texts.close));
  document.getElementById("notes").append(shown);
  if (!bad) setTimeout(close, button ? 12000 : 5000);
}

/** Asks. Resolves to the form's data if it is confirmed, to null if not. */
export function ask({ title, body = [], confirm, danger = false }) {
  return new Promise((resolve) => {
    const form = element("form", { method: "dialog" },
      element("h2", { id: "ask-title" }, title),
      ...body.map((part) => (typeof part === "string" ? element("p", {}, part) : part)),
      element("div", { class: "actions" },
        element("button", { type: "button", click: () => dialog.close() }, confirm ? texts.cancel_dialog : texts.close),
        ...(confirm ? [element("button", { class: danger ? "danger" : "primary", value: "yes" }, confirm)] : [])));
    const dialog = element("dialog", { "aria-labelledby": "ask-title" }, form);
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "yes" ? new FormData(form) : null);
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Calls the API. A text is a body of JSON as it is. Throws an error that people can read. */
export async function call(method, path, body, headers = {}, signal) {
  let answer;
  try {
    const type = body === undefined ? {} : { "content-type": "application/json" };
    const text = typeof body === "string" ? body : JSON.stringify(body);
    answer = await fetch(base + path, { method, body: text, signal, headers: { accept: "application/json", ...type, ...headers } });
  } catch (error) {
    throw signal?.aborted ? error : new Error(texts.no_answer);
  }
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({}));
  throw new Error([problem.title ?? answer.statusText, problem.detail].filter(Boolean).join(": "));
}

// Copies what a button names. Browsers allow it on pages that are safe.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(button.dataset.copy);
  note(texts.copied);
});
document.documentElement.classList.toggle("may-copy", navigator.clipboard !== undefined);

// ---- Keyboard

const PLACES = { o: "/", u: "/upcoming", t: "/tasks?state=overdue,pending,waiting,running", d: "/dead" };
let going = 0;

function step(by) {
  const rows = [...document.querySelectorAll("main tbody tr:has(a)")];
  if (!rows.length) return;
  const here = rows.findIndex((row) => row.classList.contains("here") || row.contains(document.activeElement));
  const next = rows[Math.min(Math.max(here + by, 0), rows.length - 1)];
  rows[here]?.classList.remove("here");
  next.classList.add("here");
  next.scrollIntoView({ block: "nearest" });
  next.querySelector("a")?.focus({ preventScroll: true });
}

export function shortcuts() {
  const rows = [["/", texts.key_search], ["j k", texts.key_rows], ["Enter", texts.key_open], [".", texts.key_live], ["g o, g u, g t, g d", texts.key_pages], ["?", texts.key_help]];
  const list = element("dl", {}, ...rows.flatMap(([keys, text]) => [element("dt", {}, element("kbd", {}, keys)), element("dd", {}, text)]));
  ask({ title: texts.shortcuts, body: [list] });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.closest("input, textarea, select, [contenteditable]")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const place = Date.now() - going < 1000 && PLACES[event.key];
  going = 0;
  if (place) location.href = base + place;
  else if (event.key === "/") document.getElementById("find").focus();
  else if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
  else if (event.key === ".") pause(!paused);
  else if (event.key === "?") shortcuts();
  else if (event.key === "g") going = Date.now();
  else return;
  event.preventDefault();
});

const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
const ownZone = document.querySelector("[data-own-zone]");
if (own && own !== zone) {
  ownZone.href = ownZone.dataset.ownZone.replace("ZONE", encodeURIComponent(own));
  ownZone.textContent = own;
  ownZone.hidden = false;
}

const help = document.getElementById("help");
help.hidden = false;
help.addEventListener("click", shortcuts);

// ---- Start

// The server shows times in the zone of the browser, once it knows it.
if ("askZone" in document.body.dataset) {
  if (own && own !== "UTC" && !document.cookie.includes("lapsed_zone=")) {
    document.cookie = `lapsed_zone=${own}; Path=${base}/; Max-Age=31536000; SameSite=Lax`;
    if (document.cookie.includes("lapsed_zone=") && document.querySelector("time, input[type=datetime-local], #tz")) location.reload();
  }
}
document.querySelector(".places [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
setInterval(tick, 1000);
connect();
told(shared, document);
// Other pages than the first are not kept waiting for the state of the installation.
trouble();
