// Changes: of one task, of all that match a filter, and the form that schedules a task. All of them call the API.

import { ask, base, call, clock, element, fill, moment, note, refresh, texts, written } from "./app.js";

const path = (key) => `/v1/tasks/${encodeURIComponent(key)}`;
const iso = (ms) => new Date(ms).toISOString();
/** Keeps numbers as they are written, if the browser can: a payload may have more digits than a number of JavaScript. */
const exactly = (name, value, context) => (typeof value === "number" && JSON.rawJSON ? JSON.rawJSON(context.source) : value);
const failed = (error) => note(fill(texts.failed, error.message), { bad: true });

// ---- One task

const ACTS = {
  async run({ key, name }) {
    const yes = await ask({ title: texts.run_ask, body: [name, texts.run_detail], confirm: texts.run_do });
    if (!yes) return;
    await call("POST", `${path(key)}/run`);
    note(texts.run_done);
  },

  async move({ key, name, id, dueAt, isRetry }) {
    const at = element("input", { type: "datetime-local", step: "1", name: "at", value: clock(dueAt), "aria-label": texts.move_ask, required: true });
    const earlier = moment(at.value);
    const by = (minutes) => element("button", { type: "button", click: () => { at.value = clock(moment(at.value) + minutes * 60000); } }, `+${minutes < 60 ? fill(texts.minute, minutes) : fill(texts.hour, minutes / 60)}`);
    const yes = await ask({ title: texts.move_ask, body: [name, element("div", { class: "actions" }, at, by(10), by(60), by(1440)), fill(texts.zone, document.body.dataset.zone), ...(isRetry ? [texts.move_retry] : [])], confirm: texts.move_do });
    if (!yes || moment(yes.get("at")) === earlier) return;
    const answer = await call("PATCH", path(key), { at: iso(moment(yes.get("at"))) }, { "if-match": `"${id}"` });
    const moved = await answer.json();
    const undo = async () => {
      await call("PATCH", path(key), { at: iso(dueAt) }, { "if-match": `"${moved.id}"` });
      note(texts.undone);
    };
    // Attempts and errors of a retry are gone: to move it back is no undoing.
    note(fill(texts.move_done, written(Date.parse(moved.due))), isRetry ? {} : { button: { text: texts.undo, press: () => act(undo) } });
  },

  async cancel({ key, name, id, due, isSeries }) {
    const [title, detail, confirm] = isSeries ? [texts.end_ask, texts.end_detail, texts.end_do] : [texts.cancel_ask, texts.cancel_detail, texts.cancel_do];
    const yes = await ask({ title, body: [name, detail], confirm, danger: true });
    if (!yes) return;
    const before = JSON.parse(await (await call("GET", path(key))).text(), exactly);
    const answer = await (await call("DELETE", path(key), undefined, { "if-match": `"${id}"` })).json();
    if (answer.outcome === "running") return note(texts.cancel_running);
    // What is due already would start at once, and a series has more to it than these members.
    // It is created again by its key, which is not known of a task that is named by its row.
    const isWhole = !before.masked && key.includes("@") && (before.payload === null || JSON.rawJSON);
    const isBack = !isSeries && isWhole && due > Date.now();
    const undo = async () => {
      const { payload, tag, max_attempts } = before;
      await call("PUT", path(key), { at: iso(due), ...(payload !== null && { payload }), ...(tag !== null && { tag }), ...(max_attempts !== null && { max_attempts }) });
      note(texts.undone);
    };
    note(texts.cancel_done, isBack ? { button: { text: texts.undo, press: () => act(undo) } } : {});
  },

  async redrive({ key, name }) {
    const yes = await ask({ title: texts.redrive_ask, body: [name, texts.redrive_detail], confirm: texts.redrive_do });
    if (!yes) return;
    await call("POST", `${path(key)}/redrive`);
    note(texts.redrive_done);
  },

  async discard({ key, name }) {
    const yes = await ask({ title: texts.discard_ask, body: [name, texts.discard_detail], confirm: texts.discard_do, danger: true });
    if (!yes) return;
    await call("POST", `${path(key)}/discard`);
    note(texts.discard_done);
  },
};

async function act(change) {
  try {
    await change();
  } catch (error) {
    failed(error);
  }
  refresh();
}

// ---- All that match

/** Calls `tell` with each line of an answer of JSON lines, and returns the last. */
async function lines(answer, tell) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", latest = {};
  for (;;) {
    const { value, done } = await reader.read();
    const parts = (rest + (value ?? "")).split("\n");
    rest = parts.pop();
    for (const part of parts.filter(Boolean)) tell((latest = JSON.parse(part)));
    if (done) return latest;
  }
}

/** `shown` is the number of tasks that the page has counted. */
async function bulk(verb, filter, { shown } = {}) {
  const says = (name) => texts[`${verb}_all_${name}`];
  const found = await (await call("POST", `/v1/${verb}`, { ...filter, dry_run: true })).json();
  const number = (count) => count.toLocaleString("en");
  const count = (found.at_least ? `${texts.at_least} ` : "") + number(found.tasks);
  if (!found.tasks && !found.running) return note(texts.all_none);
  const which = Object.entries(filter).map(([name, value]) => element("code", {}, `${name}: ${value}`));
  const body = [element("p", { class: "which" }, ...which), fill(texts.all_count, count), says("detail")];
  if (shown && Number(shown) !== found.tasks) body.splice(2, 0, fill(texts.all_more, number(Number(shown))));
  if (found.running) body.push(fill(texts.all_running, number(found.running)));
  const rate = element("input", { type: "number", name: "rate", min: "1", max: "100000", value: "1000", id: "bulk-rate" });
  if (verb === "redrive") body.push(element("p", {}, element("label", { for: "bulk-rate" }, texts.all_rate), " ", rate));
  const reason = element("input", { name: "audit_reason", maxlength: "255", autocomplete: "off", id: "bulk-reason" });
  body.push(element("p", {}, element("label", { for: "bulk-reason" }, texts.all_reason), " ", reason));
  const [question, confirm] = [fill(says("ask"), count), fill(says("do"), count)];
  const yes = await ask({ title: question, body, confirm, danger: verb !== "redrive" });
  if (!yes) return;

  const stop = new AbortController();
  const bar = element("progress", found.at_least ? {} : { max: found.tasks + found.running, value: "0", "aria-label": question });
  const text = element("p", { role: "status" }, fill(texts.all_progress, "0", count));
  const dialog = element("dialog", { "aria-labelledby": "bulk-title" },
    element("h2", { id: "bulk-title" }, question), bar, text,
    element("div", { class: "actions" }, element("button", { type: "button", click: () => stop.abort() }, texts.stop)));
  dialog.addEventListener("cancel", () => stop.abort());
  document.body.append(dialog);
  dialog.showModal();
  let latest = { tasks: 0 };
  try {
    const body = { ...filter, audit_reason: yes.get("audit_reason").trim(), ...(verb === "redrive" && { rate: Number(yes.get("rate")) }) };
    const answer = await call("POST", `/v1/${verb}`, body, {}, stop.signal);
    latest = await lines(answer, (line) => {
      latest = line;
      if (!found.at_least) bar.value = line.tasks + line.running;
      text.textContent = fill(texts.all_progress, number(line.tasks), count);
    });
    if (latest.problem) throw new Error(latest.problem.detail);
    note(fill(says("done"), number(latest.tasks)) + (latest.skipped ? ` ${fill(texts.all_skipped, number(latest.skipped))}` : ""));
  } catch (error) {
    if (stop.signal.aborted) note(fill(texts.all_stopped, number(latest.tasks)));
    else failed(error);
  } finally {
    dialog.remove();
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-act], [data-bulk]");
  if (!button) return;
  if (button.dataset.bulk) return act(() => bulk(button.dataset.bulk, JSON.parse(button.dataset.filter), button.dataset));
  const { task: key, name, id, due, dueAt, series, retry } = button.closest("[data-task]").dataset;
  act(() => ACTS[button.dataset.act]({ key, name, id, due: Number(due), dueAt: Number(dueAt), isSeries: series !== undefined, isRetry: retry !== undefined }));
});

// ---- A new task

const form = document.getElementById("schedule");
form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const problem = document.getElementById("schedule-problem");
  problem.hidden = true;
  try {
    const task = {};
    for (const [name, value] of new FormData(form)) if (value.trim()) task[name] = value.trim();
    if (task.at) task.at = iso(moment(task.at));
    if (task.max_attempts) task.max_attempts = Number(task.max_attempts);
    if (!task.cron) delete task.tz;
    if (task.every || task.cron) delete task.if_pending;
    const { payload, after_tag, ...others } = task;
    if (after_tag) others.after = { tag: after_tag };
    // The payload is sent as typed: numbers keep all their digits.
    if (payload) JSON.parse(payload);
    const text = JSON.stringify(others);
    const body = payload ? `${text.slice(0, -1)},"payload":${payload}}` : text;
    const made = await (await call("POST", "/v1/tasks", body)).json();
    location.href = `${base}/task?key=${encodeURIComponent(made.key)}`;
  } catch (error) {
    problem.textContent = error.message;
    problem.hidden = false;
    problem.scrollIntoView({ block: "nearest" });
  }
});
