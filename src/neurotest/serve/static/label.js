// The labelling page: one input, large; a key answers it; the next one comes.
import { byId, element, events, get, holder, post } from "/static/api.js";
import { draw } from "/static/chart.js";
import { fitting } from "/static/classes.js";
import { Grid } from "/static/grid.js";
import { play, show } from "/static/media.js";
import { Quantity } from "/static/quantity.js";

const DIGITS = 10; // classes up to which a digit answers at once
const whole = (value) => Math.round(value).toLocaleString("en");
const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

class Page {
  constructor(about) {
    this.about = about;
    this.holder = holder();
    this.current = null;
    this.busy = false;
    this.chosen = 0;
    this.searching = false; // from the first letter of a class until it is answered or given up: keys type
    this.quick = about.classes.length <= DIGITS;
    byId("target").textContent = `${about.run} · ${about.target}`;
    document.title = `Label ${about.run}`;
    byId("by").value = localStorage.getItem("by") ?? about.by;
    byId("by").addEventListener("change", () => localStorage.setItem("by", byId("by").value));
    this.quantity = null;
    if (about.quantity) this.ask(about.quantity);
    else this.classes();
    this.grid = new Grid(this);
    byId("play").hidden = about.media !== "audio/wav";
    const actions = { play: () => play(byId("picture")), guess: () => this.guess(), unclear: () => this.answer(null), invalid: () => this.answer(null, false), skip: () => this.skip(), undo: () => (byId("single").hidden ? this.grid.undo() : this.undo()), one: () => this.turn("one"), many: () => this.turn("many") };
    for (const [id, action] of Object.entries(actions)) byId(id).addEventListener("click", action);
    document.addEventListener("keydown", (event) => this.key(event));
    byId("search").addEventListener("input", () => { this.searching = true; this.matches(); });
    byId("search").addEventListener("blur", () => { this.searching = false; this.hint(); });
    events.addEventListener("away", (event) => this.notice(event.detail));
    events.addEventListener("stranger", (event) => this.notice(event.detail));
    events.addEventListener("back", () => this.notice(""));
    setInterval(() => post("/api/renew", { holder: this.holder }).catch(() => {}), 30000);
    setInterval(() => this.refresh(), 3000);
  }

  by() {
    return byId("by").value.trim();
  }

  notice(text) {
    byId("notice").textContent = text;
    byId("notice").hidden = !text;
  }

  say(text, kind = "") {
    byId("said").textContent = text;
    byId("said").dataset.kind = kind;
  }

  // What a request gives; undefined, with a sentence, when it was refused. While one is under way, keys do nothing.
  async attempt(work) {
    if (this.busy) return undefined;
    this.busy = true;
    try {
      return await work();
    } catch (error) {
      this.say(error.message, "refused");
      return undefined;
    } finally {
      this.busy = false;
    }
  }

  classes() {
    byId("classes").hidden = !this.quick;
    byId("search").placeholder = this.quick ? "type letters of a class" : "type a class, then Enter";
    byId("search-label").textContent = this.quick ? "or by name" : `Class (one of ${this.about.classes.length.toLocaleString("en")})`;
    if (!this.quick) return;
    byId("classes").replaceChildren(
      ...this.about.classes.map((name, number) => {
        const words = name === String(number) ? [] : [` ${name}`];
        const button = element("button", { type: "button" }, element("kbd", {}, String(number)), ...words);
        button.addEventListener("click", () => this.answer(number));
        return button;
      }),
    );
  }

  // A number is asked for: no classes, no grid, no selector that promises anything.
  ask(about) {
    this.quick = true;
    this.quantity = new Quantity(this, about);
    for (const id of ["classes", "by-class", "many", "forecast", "by-folder", "by-tasks"]) byId(id).hidden = true;
    byId("question").textContent = "Which number belongs to this?";
    byId("rule").textContent = "Type or drag it; or look at the network's answer and say whether that is right or off.";
    byId("beside").textContent = `Inputs come in the order of ${about.order}; what random labelling would have found is not estimated.`;
    byId("chart-words").textContent = "Faults found per label: answers farther from the number than the network may be off.";
  }

  async next() {
    for (;;) {
      const answer = await this.attempt(() => post("/api/next", { holder: this.holder }));
      if (!answer) return;
      if (answer.state !== "choosing") {
        this.show(answer.input);
        return;
      }
      this.show(null, "Choosing what to show next …");
      await new Promise((done) => setTimeout(done, 200));
    }
  }

  show(input, words = "There is nothing left to label: every input that can be shown has a label.") {
    this.current = input;
    byId("guessed").textContent = "";
    this.clear();
    byId("name").textContent = input?.name ?? (input ? `input ${input.position}` : "");
    byId("picture").dataset.position = input ? String(input.position) : "";
    if (input) {
      show(byId("picture"), this.about.media, input, "The input to label");
      play(byId("picture"));
    }
    else byId("picture").replaceChildren(element("p", {}, words));
    for (const button of document.querySelectorAll("#classes button, .actions button")) button.disabled = !input && !["grid-back", "grid-done"].includes(button.id);
    if (document.activeElement === document.body || document.activeElement?.closest("#single")) this.rest();
  }

  // Where the focus waits: keys answer without a field while digits are enough, else classes are typed.
  rest() {
    if (this.quick) document.activeElement?.blur();
    else byId("search").focus();
  }

  clear() {
    byId("search").value = "";
    this.searching = false;
    this.matches();
    this.quantity?.clear();
  }

  hint() {
    const keys = this.quick ? `Keys act at once: 0 to ${this.about.classes.length - 1} and those on the buttons. A letter begins a search.` : "While this is empty, the keys on the buttons act.";
    byId("keys").textContent = this.typing() ? "Searching: keys type here. Enter takes the marked class, Esc gives up." : keys;
  }

  typing() {
    return this.searching || byId("search").value !== "";
  }

  async answer(label, valid = true) {
    const input = this.current;
    if (!input || this.busy) return;
    await this.send({ label, valid }, label === null ? (valid ? "cannot tell" : "not a valid input") : this.about.classes[label]);
  }

  // Store an answer about the input on show, in words for people, and go on.
  async send(answer, word) {
    const input = this.current;
    if (!input || this.busy) return;
    const stored = await this.attempt(() => post("/api/label", { holder: this.holder, position: input.position, ...answer, by: this.by() }));
    if (stored) {
      const near = this.quantity ? "is near enough" : "said so, too";
      const verdict = stored.fault === null ? "" : stored.fault ? `; the network ${this.quantity ? "is off" : "said something else"}, a fault` : `; the network ${near}`;
      this.say(`Last: “${word}”${verdict}.`);
    }
    await this.next();
    this.refresh();
  }

  async skip() {
    const input = this.current;
    if (!input) return;
    if (await this.attempt(() => post("/api/skip", { holder: this.holder, position: input.position }))) this.say("Last: skipped, nothing stored.");
    await this.next();
  }

  async undo() {
    const undone = await this.attempt(() => post("/api/undo", { holder: this.holder, by: this.by() }));
    if (undone) {
      this.say(`Last: ${plural(undone.undone.length, "label")} taken back.`);
      await this.next();
    }
    this.refresh();
  }

  async guess() {
    const input = this.current;
    if (!input) return;
    const guess = await this.attempt(() => get(`/api/inputs/${input.position}/guess`));
    if (!guess || this.current !== input) return;
    byId("guessed").textContent = `The network says “${guess.name}”${this.quantity ? "." : `; the selector gives it ${percent(guess.chance)} to be wrong.`}`;
    this.quantity?.shown();
  }

  matches() {
    const found = fitting(this.about.classes, byId("search").value);
    this.chosen = Math.min(this.chosen, Math.max(0, found.length - 1));
    if (!byId("search").value) this.chosen = 0;
    byId("matches").hidden = !found.length;
    byId("search").setAttribute("aria-expanded", String(found.length > 0));
    if (found.length) byId("search").setAttribute("aria-activedescendant", `match-${this.chosen}`);
    else byId("search").removeAttribute("aria-activedescendant");
    byId("matches").replaceChildren(
      ...found.map((one, index) => {
        const item = element("li", { id: `match-${index}`, role: "option", "aria-selected": String(index === this.chosen) }, `${one.number} ${one.name === String(one.number) ? "" : one.name}`);
        item.addEventListener("mousedown", (event) => { event.preventDefault(); this.answer(one.number); });
        return item;
      }),
    );
    this.hint();
    return found;
  }

  key(event) {
    const target = event.target;
    if (event.isComposing || (event.key === "z" && (event.ctrlKey || event.metaKey) && target.id !== "by" && (event.preventDefault(), this.undo(), true))) return;
    if (event.ctrlKey || event.metaKey || event.altKey || target.id === "by" || target.tagName === "SUMMARY" || target.tagName === "A") return;
    if (byId("single").hidden) {
      if (target.tagName !== "SELECT") this.grid.key(event);
      return;
    }
    if (target.tagName === "BUTTON" && [" ", "Enter"].includes(event.key)) {
      if (event.repeat && event.key === "Enter") event.preventDefault();
      return;
    }
    const number = this.quantity?.key(event);
    if (number === "typing") return;
    if (number || this.typed(event) || this.command(event)) event.preventDefault();
    else if (this.quantity) return;
    else if (event.key.length === 1) byId("search").focus();
  }

  // Keys while a class is being searched.
  typed(event) {
    if (!this.typing()) return false;
    const found = this.matches();
    if (event.key === "Enter" && found.length) this.answer(found[this.chosen].number);
    else if (event.key === "Escape") { this.clear(); this.rest(); }
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      this.chosen = Math.min(found.length - 1, Math.max(0, this.chosen + (event.key === "ArrowDown" ? 1 : -1)));
      this.matches();
    } else return false;
    return true;
  }

  command(event) {
    if (this.typing()) return false;
    if (this.quick && !this.quantity && /^[0-9]$/.test(event.key)) {
      if (!event.repeat && Number(event.key) < this.about.classes.length) this.answer(Number(event.key));
      return true;
    }
    const commands = { ArrowDown: "play", " ": "guess", "?": "unclear", Delete: "invalid", ArrowRight: "skip", Backspace: "undo" };
    if (!(event.key in commands) || byId(commands[event.key]).hidden) return false;
    if (!event.repeat) byId(commands[event.key]).click(); // a key held down acts once
    return true;
  }

  // What was answered in the other view stays there.
  turn(which) {
    this.say("");
    return this.mode(which);
  }

  async mode(which) {
    byId("single").hidden = which !== "one";
    byId("grid").hidden = which === "one";
    byId("one").setAttribute("aria-pressed", String(which === "one"));
    byId("many").setAttribute("aria-pressed", String(which !== "one"));
    await (which === "one" ? this.next() : this.grid.load());
    if (which === "one") this.rest();
  }

  async refresh() {
    const now = await get("/api/progress").catch(() => null);
    if (now) this.progress(now);
  }

  progress(now) {
    const standing = now.standing;
    byId("faults").textContent = now.faults.toLocaleString("en");
    byId("faults-words").textContent = `${now.faults === 1 ? "fault" : "faults"} found with ${plural(now.judged, "label")} in all`;
    const random = standing?.random ?? null;
    if (!this.quantity) byId("beside").textContent = random
      ? `With as many labels at random, about ${whole(random.rate * now.judged)} would have been found (95 % interval: ${whole(random.low * now.judged)} to ${whole(random.high * now.judged)}).`
      : "What random labelling would have found is shown after the first labels.";
    draw(byId("chart"), now.judged, now.fault_at, random);
    if (standing) {
      const next = standing.next;
      byId("promise").textContent = `about ${next.faults.toFixed(1)} faults expected of ${plural(next.size, "label")} (${percent(next.rate)}; at random ${percent(next.random_rate)})`;
      const left = standing.remaining;
      byId("left").textContent = `about ${whole(left.faults)} among ${(now.pool - now.labels).toLocaleString("en")} unlabelled inputs, between ${whole(left.low)} and ${whole(left.high)}; ${left.by === "model" ? "a model's guess" : `measured by ${left.by}`}`;
      byId("stop").textContent = `You can stop. ${standing.advice.replace(/^Stop: t/, "T").replace(/^Stop: e/, "E")}`;
    }
    byId("stop").hidden = !now.can_stop;
    byId("batch").max = now.round_size;
    byId("batch").value = now.round_spent;
    byId("batch-words").textContent = `${now.round_spent} of ${plural(now.round_size, "label")}${now.choosing ? "; the next batch is being chosen meanwhile, just go on" : ""}`;
    const extra = [now.unclear ? `${now.unclear} could not be told` : "", now.invalid ? `${now.invalid} not valid` : "", now.people.length > 1 ? `labelled by ${now.people.join(", ")}` : "", now.looking > 1 ? `${now.looking} tabs are labelling` : "", now.problem];
    byId("others").textContent = extra.filter(Boolean).join("; ");
  }
}

const page = new Page(await get("/api/about"));
await page.next();
page.rest();
await page.refresh();
