// A number in place of a class: typed or dragged; or, once the network's answer is shown, a mark that it is right or off.
import { byId } from "/static/api.js";

const STEPS = 400; // of the slider

export class Quantity {
  constructor(page, about) {
    this.page = page;
    this.about = about;
    byId("amount").hidden = false;
    byId("range").textContent = `${about.low} to ${about.high}; an answer may be off by ${Number(about.tolerance.toPrecision(4))}`;
    for (const [name, value] of [["min", about.low], ["max", about.high], ["step", (about.high - about.low) / STEPS]]) byId("slider").setAttribute(name, String(value));
    byId("slider").addEventListener("input", () => { byId("value").value = String(Number(Number(byId("slider").value).toPrecision(4))); this.judge(); });
    byId("value").addEventListener("input", () => this.judge());
    byId("store").addEventListener("click", () => this.store());
    byId("right").addEventListener("click", () => this.mark("right"));
    byId("off").addEventListener("click", () => this.mark("off"));
    this.clear();
  }

  clear() {
    byId("value").value = "";
    byId("slider").value = String((this.about.low + this.about.high) / 2);
    this.guessed = false;
    this.judge();
  }

  // The number as it stands; null where there is none.
  typed() {
    const text = byId("value").value.trim().replace(",", ".");
    const value = Number(text);
    return text && Number.isFinite(value) ? value : null;
  }

  judge() {
    const value = this.typed();
    const outside = value !== null && (value < this.about.low || value > this.about.high);
    if (value !== null) byId("slider").value = String(value);
    byId("store").disabled = !this.page.current || value === null;
    byId("value").setAttribute("aria-invalid", String(Boolean(byId("value").value.trim()) && value === null));
    byId("outside").hidden = !outside;
    for (const id of ["right", "off"]) byId(id).disabled = !this.page.current || !this.guessed;
  }

  // The network's answer is on show: it can be judged.
  shown() {
    this.guessed = true;
    this.judge();
  }

  store() {
    const value = this.typed();
    if (value !== null) this.page.send({ value }, String(value));
  }

  mark(mark) {
    if (this.guessed) this.page.send({ mark }, mark === "right" ? "the network is right" : "the network is off");
  }

  // Whether a key was for a number.
  key(event) {
    if (event.key === "Enter") this.store();
    else if (event.key === "Escape") { this.clear(); byId("value").blur(); }
    else if (byId("value").value !== "" && event.target.id === "value") return event.key.length === 1 || ["Backspace", "Delete", "ArrowLeft", "ArrowRight"].includes(event.key) ? "typing" : false;
    else if (event.target.id === "slider" && event.key.startsWith("Arrow")) return "typing";
    else if (event.key === "r" || event.key === "o") { if (!event.repeat) this.mark(event.key === "r" ? "right" : "off"); }
    else if (/^[-0-9.,]$/.test(event.key)) { byId("value").focus(); return "typing"; }
    else return false;
    return "done";
  }
}
