// How an input is shown. A further kind (sound, say) is one more entry here, and one function in media.py.
import { element } from "/static/api.js";

const KINDS = {
  "image/png": (input, words) => element("img", { src: input.picture, alt: words, decoding: "async", draggable: false }),
};

export function show(place, kind, input, words) {
  place.replaceChildren((KINDS[kind] ?? KINDS["image/png"])(input, words));
}
