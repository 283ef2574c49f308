// Which classes fit what was typed: the number itself, names that begin so, words that do, then any part of a name.

export function fitting(classes, typed, most = 8) {
  const text = typed.trim().toLowerCase();
  if (!text) return [];
  const ranked = [];
  classes.forEach((name, number) => {
    const lower = name.toLowerCase();
    let rank = 4;
    if (String(number) === text || lower === text) rank = 0;
    else if (lower.startsWith(text)) rank = 1;
    else if (lower.split(/[^\p{L}\p{N}]+/u).some((word) => word.startsWith(text))) rank = 2;
    else if (lower.includes(text)) rank = 3;
    if (rank < 4) ranked.push({ number, name, rank });
  });
  return ranked.sort((one, other) => one.rank - other.rank || one.number - other.number).slice(0, most);
}
