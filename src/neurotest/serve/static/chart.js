// Faults found per label, beside random: two lines and a band, drawn into an SVG element.

const SPACE = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [360, 220, 38, 74, 10, 34];

function part(tag, attributes, text) {
  const made = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function steps(most) {
  const rough = Math.max(1, most / 4);
  const power = 10 ** Math.floor(Math.log10(rough));
  const size = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough);
  return Array.from({ length: Math.floor(most / size) + 1 }, (_, index) => index * size);
}

export function draw(svg, judged, faultAt, random) {
  const most = Math.max(20, Math.ceil(judged * 1.1));
  const top = Math.max(5, Math.ceil(Math.max(faultAt.length, random ? random.high * judged : 0) * 1.1));
  const x = (labels) => LEFT + ((WIDTH - LEFT - RIGHT) * labels) / most;
  const y = (faults) => HEIGHT - BOTTOM - ((HEIGHT - TOP - BOTTOM) * faults) / top;
  const parts = [svg.querySelector("title")];
  for (const value of steps(top)) {
    parts.push(part("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }));
    parts.push(part("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, value));
  }
  for (const value of steps(most)) parts.push(part("text", { x: x(value), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle" }, value));
  parts.push(part("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 3, "text-anchor": "middle", class: "axis" }, "labels"));
  if (random && judged) {
    const corners = [[0, 0], [judged, random.low * judged], [judged, random.high * judged]];
    parts.push(part("polygon", { class: "band", points: corners.map(([a, b]) => `${x(a)},${y(b)}`).join(" ") }));
    parts.push(part("line", { class: "random", x1: x(0), y1: y(0), x2: x(judged), y2: y(random.rate * judged) }));
  }
  const points = [[0, 0]];
  faultAt.forEach((at, index) => points.push([at, index], [at, index + 1]));
  points.push([judged, faultAt.length]);
  parts.push(part("polyline", { class: "found", points: points.map(([a, b]) => `${x(a)},${y(b)}`).join(" ") }));
  if (judged) {
    const ends = [["found", "found", y(faultAt.length)], ["random", "at random", random ? y(random.rate * judged) : null]];
    let last = null;
    for (const [kind, words, height] of ends) {
      if (height === null) continue;
      const place = last !== null && Math.abs(height - last) < 14 ? last + 14 : height;
      parts.push(part("text", { class: `end ${kind}`, x: x(judged) + 5, y: place + 4 }, words));
      last = place;
    }
  }
  svg.replaceChildren(...parts);
}
