/** Counters of the gateway, in the text form of Prometheus, and what can be read from them. */

export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

export function parse(text: string): Sample[] {
  const found: Sample[] = [];
  for (const line of text.split("\n")) {
    const match = line.startsWith("#") ? null : LINE.exec(line);
    if (!match) continue;
    const labels: Record<string, string> = {};
    for (const [, name, value] of (match[2] ?? "").matchAll(LABEL)) labels[name!] = value!.replace(/\\(.)/g, "$1");
    found.push({ name: match[1]!, labels, value: Number(match[3]) });
  }
  return found;
}

export function sum(samples: Sample[], name: string, is: (labels: Record<string, string>) => boolean = () => true): number {
  return samples.reduce((total, one) => (one.name === name && is(one.labels) ? total + one.value : total), 0);
}

/** The value below which this part of a histogram's observations lie, within its buckets. */
export function bucketQuantile(
  samples: Sample[],
  name: string,
  part: number,
  is: (labels: Record<string, string>) => boolean = () => true,
): number | null {
  const counts = new Map<number, number>();
  for (const one of samples) {
    if (one.name !== `${name}_bucket` || !is(one.labels)) continue;
    const bound = one.labels["le"] === "+Inf" ? Infinity : Number(one.labels["le"]);
    counts.set(bound, (counts.get(bound) ?? 0) + one.value);
  }
  const bounds = [...counts].sort(([a], [b]) => a - b);
  const all = bounds.at(-1)?.[1] ?? 0;
  if (!all) return null;
  let below = 0;
  let from = 0;
  for (const [bound, count] of bounds) {
    if (count >= part * all) {
      if (bound === Infinity) return from;
      return from + ((bound - from) * (part * all - below)) / Math.max(count - below, 1e-9);
    }
    below = count;
    from = bound;
  }
  return from;
}
