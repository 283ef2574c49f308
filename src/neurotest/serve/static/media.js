// How an input is shown: a picture, or a sound with its spectrogram. media.py knows the same kinds.
import { element } from "/static/api.js";

const picture = (input, words) => element("img", { src: input.picture, alt: words, decoding: "async", draggable: false });
const sound = (input, settings) => element("audio", { src: input.picture.replace(/picture$/, "sound"), preload: "auto", ...settings });

const KINDS = {
  "image/png": (input, words) => [picture(input, words)],
  // Inside a button nothing else can be pressed: the sound of a cell plays when the cell is reached.
  "audio/wav": (input, words, cell) => [picture(input, words), sound(input, cell ? {} : { controls: "", "aria-label": words })],
};

export function show(place, kind, input, words, cell = false) {
  place.classList.toggle("sound", kind === "audio/wav");
  place.replaceChildren(...(KINDS[kind] ?? KINDS["image/png"])(input, words, cell));
}

// From its beginning; a browser may refuse until a key was pressed, and then the key plays it.
export function play(place) {
  const player = place?.querySelector("audio");
  if (!player) return false;
  player.currentTime = 0;
  player.play().catch(() => {});
  return true;
}
