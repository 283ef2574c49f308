// Thirty inputs of one predicted class: mark the wrong ones; what is stored is said, and confirmed, before it is.
import { byId, element, post } from "/static/api.js";
import { play, show } from "/static/media.js";

const COLUMNS = () => getComputedStyle(byId("cells")).gridTemplateColumns.split(" ").length;

export class Grid {
  constructor(page) {
    this.page = page;
    this.inputs = [];
    this.name = "";
    this.predicted = 0;
    this.asked = false; // whether what will be stored was said: the next enter stores it
    const choice = byId("grid-class");
    choice.append(element("option", { value: "" }, "the class with most faults expected"));
    page.about.classes.forEach((name, number) => choice.append(element("option", { value: String(number) }, name)));
    choice.addEventListener("change", () => this.load(choice.value));
    byId("grid-done").addEventListener("click", (event) => { if (event.detail < 2) this.confirm(); }); // a double click is one
    byId("grid-back").addEventListener("click", () => this.back());
    byId("cells").addEventListener("click", (event) => this.toggle(event.target.closest("button")));
  }

  async load(number = byId("grid-class").value) {
    const body = { holder: this.page.holder, predicted: number === "" ? null : Number(number) };
    const grid = await this.page.attempt(() => post("/api/grid", body));
    if (!grid) return;
    this.inputs = grid.inputs;
    this.name = grid.name;
    this.predicted = grid.predicted;
    byId("grid-rule").textContent = `Those you do not mark will be stored as “${grid.name}”.`;
    byId("grid-question").textContent = grid.inputs.length ? `Which of these are not “${grid.name}”?` : `Nothing is left that the network takes for “${grid.name}”.`;
    byId("cells").replaceChildren(
      ...grid.inputs.map((input, index) => {
        const cell = element("button", { type: "button", "aria-pressed": "false", "data-index": String(index), "data-mark": `not ${grid.name}`, "aria-label": `Input ${index + 1} of ${grid.inputs.length}` });
        show(cell, this.page.about.media, input, "", true);
        cell.addEventListener("focus", () => play(cell));
        return cell;
      }),
    );
    byId("grid-done").disabled = !grid.inputs.length;
    byId("cells").firstElementChild?.focus();
    this.count();
  }

  toggle(cell) {
    if (!cell) return;
    this.back();
    cell.setAttribute("aria-pressed", cell.getAttribute("aria-pressed") === "true" ? "false" : "true");
    this.count();
  }

  wrong() {
    return [...byId("cells").querySelectorAll('[aria-pressed="true"]')].map((cell) => this.inputs[Number(cell.dataset.index)].position);
  }

  // What an answer would store.
  words() {
    const wrong = this.wrong().length;
    const right = this.inputs.length - wrong;
    const classes = this.page.about.classes;
    const others = classes.length === 2 ? `${wrong} as “${classes[1 - this.predicted]}”` : `name the ${wrong === 1 ? "other" : `${wrong} others`} one by one`;
    return [right ? `store ${right} as “${this.name}”` : "", wrong ? (classes.length === 2 && !right ? `store ${others}` : others) : ""].filter(Boolean).join(", ");
  }

  count(asked = false) {
    this.asked = asked;
    const words = this.words();
    byId("grid-words").textContent = asked ? `Sure? ${words[0].toUpperCase()}${words.slice(1)}: enter again` : `${this.wrong().length} of ${this.inputs.length} marked as not “${this.name}”: go on`;
    byId("grid-done").classList.toggle("sure", asked);
    byId("grid-back").hidden = !asked;
  }

  confirm() {
    if (!this.inputs.length) return undefined;
    if (this.asked) return this.done();
    this.count(true);
    this.page.say(`Nothing is stored yet. Enter again will ${this.words()}.`);
    return undefined;
  }

  back() {
    if (!this.asked) return;
    this.page.say("");
    this.count();
  }

  async done() {
    const wrong = this.wrong();
    const right = this.inputs.map((input) => input.position).filter((position) => !wrong.includes(position));
    const stored = await this.page.attempt(() => post("/api/grid/answer", { holder: this.page.holder, right, wrong, by: this.page.by() }));
    if (!stored) return this.load();
    this.page.say(`Last: ${stored.stored} stored from the grid.${stored.to_name ? ` Now say what the ${stored.to_name} marked ones are.` : ""}`);
    this.page.refresh();
    return stored.to_name ? this.page.mode("one") : this.load();
  }

  async undo() {
    const undone = await this.page.attempt(() => post("/api/undo", { holder: this.page.holder, by: this.page.by() }));
    if (undone) this.page.say(`Last: ${undone.undone.length} labels taken back.`);
    this.page.refresh();
    await this.load();
  }

  key(event) {
    const cells = [...byId("cells").children];
    const at = cells.indexOf(document.activeElement);
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: COLUMNS(), ArrowUp: -COLUMNS() }[event.key];
    if (step !== undefined && cells.length && document.activeElement?.tagName !== "SELECT") {
      cells[Math.min(cells.length - 1, Math.max(0, at + step))].focus();
    } else if (event.repeat && ["Enter", "Backspace"].includes(event.key)) {
      // a key held down acts once
    } else if (event.key === "Enter" && (at >= 0 || document.activeElement === document.body)) {
      this.confirm();
    } else if (event.key === "Escape") {
      this.back();
    } else if (event.key === "Backspace") {
      this.undo();
    } else {
      return;
    }
    event.preventDefault();
  }
}
