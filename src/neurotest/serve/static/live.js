// The live page: how a run stands, its families, one fault at a time, and jobs on it.
import { byId, element, events, get, post } from "/static/api.js";

const PAGE = 24; // families at a time
const MOST = 200; // that the server lists
const STATES = { running: "running now, this page follows it", done: "finished", unfinished: "not running, not finished" };
const TITLES = { seed: "seed, as it was", fault: "fault, as it was changed", shrunk: "smallest change of the family" };
const now = { changed: "", drawn: "", shown: PAGE, fault: null, jobs: new Map(), opener: null };

function notice(text) {
  byId("notice").textContent = text;
  byId("notice").hidden = !text;
}

async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    notice(error.message);
    return undefined;
  }
}

function picture(fault, view, words) {
  return element("img", { src: `/api/faults/${fault}/${view}?${now.changed}`, alt: words, loading: "lazy", decoding: "async" });
}

function pair(list, name, value) {
  list.append(element("div", {}, element("dt", {}, name), element("dd", {}, value)));
}

async function follow() {
  const state = await attempt(() => get("/api/state"));
  if (state) {
    byId("command").textContent = `${state.command} ${state.run}`;
    byId("target").textContent = state.target ? `· ${state.target}` : "";
    document.title = `${state.run}: neurotest ${state.command}`;
    byId("state").textContent = STATES[state.state];
    byId("state").dataset.state = state.state;
    byId("sentence").textContent = state.sentence;
    byId("sentence").classList.toggle("bad", state.bad);
    byId("sentence").classList.toggle("good", state.good);
    byId("numbers").replaceChildren();
    for (const { name, value } of state.numbers) pair(byId("numbers"), name, value);
    byId("caution").textContent = state.caution;
    byId("caution").hidden = !state.caution;
    byId("steps").hidden = !state.steps.length;
    byId("steps").replaceChildren(...state.steps.map(({ purpose, command }) => element("li", {}, `${purpose}: `, element("code", {}, command))));
    byId("note").textContent = state.note;
    byId("note").hidden = !state.note;
    for (const id of ["explain", "shrink"]) byId(id).disabled = Boolean(state.note);
    byId("browse").hidden = !state.browsable;
    if (state.changed !== now.changed) {
      now.changed = state.changed;
      if (state.browsable) await families();
    }
    if (state.changed !== now.drawn) await sections();
    await jobs();
  }
  setTimeout(follow, document.hidden ? 10000 : state?.state === "running" ? 2000 : 5000);
}

async function sections() {
  const drawn = await attempt(() => get("/api/sections"));
  if (!drawn) return;
  const parts = drawn.parts;
  now.drawn = drawn.changed;
  const place = byId("sections");
  const before = new Map([...place.children].map((section) => [section.id, section]));
  place.replaceChildren(
    ...parts.map((part) => {
      const section = before.get(`section-${part.name}`) ?? element("section", { id: `section-${part.name}` });
      const text = (part.title ? `<h2></h2>` : "") + part.html; // escaped by the server, as in the report
      if (section.dataset.text !== text) {
        section.innerHTML = text;
        section.dataset.text = text;
      }
      if (part.title) section.firstElementChild.textContent = part.title;
      return section;
    }),
  );
}

function options(id, names) {
  const select = byId(id);
  if (select.dataset.names === names.join("\n")) return;
  const chosen = select.value;
  select.replaceChildren(element("option", { value: "" }, "any"), ...names.map((name) => element("option", { value: name }, name)));
  select.value = names.includes(chosen) ? chosen : "";
  select.dataset.names = names.join("\n");
}

async function families() {
  const query = new URLSearchParams({ limit: String(Math.min(MOST, now.shown)) });
  for (const id of ["true", "predicted", "operator", "search"]) query.set(id, byId(id).value);
  const list = await attempt(() => get(`/api/families?${query}`));
  if (!list) return;
  options("true", list.true);
  options("predicted", list.predicted);
  options("operator", list.operators);
  const shown = list.families.length;
  const narrow = shown >= MOST && shown < list.total ? "; narrow them down with the fields above" : "";
  byId("count").textContent = list.total ? `${shown} of ${list.total.toLocaleString("en")} families shown, the most frequent first${narrow}` : "No family fits.";
  for (const button of document.querySelectorAll(".more")) {
    button.hidden = shown >= list.total || shown >= MOST;
    button.textContent = `Show ${Math.min(2 * PAGE, list.total - shown, MOST - shown)} more`;
  }
  byId("families").replaceChildren(
    ...list.families.map((family) => {
      const words = `${family.true} taken for ${family.predicted} after ${family.operator}`;
      const card = element(
        "button", { type: "button", "data-fault": String(family.fault) },
        element("span", { class: "strip" }, picture(family.fault, "seed", ""), family.picture ? picture(family.fault, "fault", "") : ""),
        element("span", { class: "title" }, element("strong", {}, family.true), " taken for ", element("strong", {}, family.predicted)),
        element("span", { class: "quiet" }, `${family.operator} · ${family.faults.toLocaleString("en")} faults from ${family.seeds.toLocaleString("en")} seeds${family.shrunk ? " · shrunk" : ""}`),
      );
      card.setAttribute("aria-label", `${words}, ${family.faults} faults`);
      card.addEventListener("click", () => { now.opener = family.fault; open(family.fault); });
      return card;
    }),
  );
}

async function open(number) {
  const fault = await attempt(() => get(`/api/faults/${number}`));
  if (!fault) return;
  now.fault = fault;
  byId("dialog-title").textContent = `Fault ${number}: ${fault.true} taken for ${fault.predicted}`;
  const heard = fault.sounds.length > 0;
  const titles = { ...TITLES, difference: heard ? "difference in decibels; white: 30 or more" : `difference × ${fault.times}; white: ${fault.times === 1 ? "the whole range" : `1/${fault.times} of the range`}` };
  byId("views").replaceChildren(
    ...fault.pictures.map((view) => element("figure", {}, picture(number, view, titles[view]), ...(fault.sounds.includes(view) ? [element("audio", { src: `/api/faults/${number}/${view}/sound`, controls: "", preload: "none", "aria-label": titles[view] })] : []), element("figcaption", {}, titles[view]))),
  );
  if (!fault.pictures.includes("fault")) byId("views").append(element("p", { class: "quiet" }, "Of this fault no picture was kept; its recipe is below."));
  byId("facts").replaceChildren();
  pair(byId("facts"), "change", fault.change);
  pair(byId("facts"), "how far", `${(100 * fault.l0).toFixed(1)} % of the values changed, the largest change is ${(100 * fault.linf).toFixed(fault.linf < 0.1 ? 1 : 0)} % ${heard ? "of the range of samples" : "of the range from black to white"}; L2 ${fault.l2.toFixed(2)}`);
  pair(byId("facts"), "seed", /^\d+$/.test(fault.seed) ? `input ${fault.seed} of the data` : fault.seed);
  pair(byId("facts"), "judged by", fault.judged);
  if (fault.shrunk) pair(byId("facts"), "smallest change", fault.shrunk);
  if (!byId("dialog").open) byId("dialog").showModal();
  show();
  const others = await attempt(() => get(`/api/families/${fault.key}/faults?limit=60`));
  if (!others || now.fault !== fault) return;
  const kept = others.faults.filter((one) => one.picture).length;
  const part = others.total > others.faults.length ? `, the ${others.faults.length} smallest changes` : "";
  byId("others-title").textContent = `${others.total.toLocaleString("en")} ${others.total === 1 ? "fault" : "faults"} of this family${part}${kept < others.faults.length ? `${kept ? `; the ${kept} with a picture` : "; no picture was kept"}` : ""}`;
  byId("others").replaceChildren(
    ...others.faults.filter((one) => one.picture || !kept).map((one) => {
      const card = element("button", { type: "button", "aria-current": String(one.number === number), "aria-label": `Fault ${one.number}` }, one.picture ? picture(one.number, "fault", "") : "", element("span", { class: "quiet" }, `${one.number}`));
      card.addEventListener("click", () => open(one.number));
      return card;
    }),
  );
}

async function jobs() {
  const list = await attempt(() => get("/api/jobs"));
  if (!list) return;
  const before = now.jobs;
  now.jobs = new Map(list.jobs.map((job) => [job.id, job]));
  const ended = list.jobs.some((job) => job.kind === "shrink" && job.state === "done" && before.size && before.get(job.id)?.state !== "done");
  if (ended && now.fault) await open(now.fault.number);
  else show();
}

function show() {
  const mine = [...now.jobs.values()].filter((job) => job.fault === now.fault?.number).reverse();
  byId("jobs").replaceChildren(
    ...mine.map((job) => {
      const words = { waiting: "waits for its turn …", running: "is being worked on …", done: job.message, failed: `failed: ${job.message}` }[job.state];
      const link = job.page ? element("a", { href: job.page, target: "_blank", rel: "noopener" }, "open the explanation") : "";
      return element("p", { class: job.state === "failed" ? "note" : "verdict", "data-job": job.kind, "data-state": job.state }, element("strong", {}, `${job.kind}: `), words, " ", link);
    }),
  );
}

async function start(kind) {
  const job = await attempt(() => post("/api/jobs", { kind, fault: now.fault.number }));
  if (!job) return;
  now.jobs.set(job.id, job);
  show();
}

for (const kind of ["explain", "shrink"]) byId(kind).addEventListener("click", () => start(kind));
for (const id of ["true", "predicted", "operator", "search"]) byId(id).addEventListener("input", () => { now.shown = PAGE; families(); });
byId("filters").addEventListener("submit", (event) => event.preventDefault());
for (const button of document.querySelectorAll(".more")) button.addEventListener("click", () => { now.shown += 2 * PAGE; families(); });
byId("dialog").addEventListener("close", () => { now.fault = null; document.querySelector(`#families [data-fault="${now.opener}"]`)?.focus(); });
events.addEventListener("away", (event) => notice(event.detail));
events.addEventListener("stranger", (event) => notice(event.detail));
events.addEventListener("back", () => notice(""));
await follow();
