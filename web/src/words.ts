/** Numbers and times as people read them. */

export function bytes(size: number | null | undefined): string {
  if (size === null || size === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) (size /= 1024), unit++;
  return `${unit && size < 10 ? size.toFixed(1) : Math.round(size)} ${units[unit]}`;
}

export function duration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} m ${whole % 60} s`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} m`;
  return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3600)} h`;
}

export function milliseconds(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !isFinite(seconds)) return "–";
  if (seconds > 0 && seconds < 0.01) return `${(seconds * 1000).toFixed(1)} ms`;
  return seconds < 1 ? `${Math.round(seconds * 1000)} ms` : seconds < 60 ? `${seconds.toFixed(2)} s` : duration(seconds);
}

export const ago = (at: string): string => `${duration((Date.now() - Date.parse(at)) / 1000)} ago`;

export const day = (at: string): string => new Date(at).toISOString().slice(0, 16).replace("T", " ");

/** An instance's id as tables show it: the name, and enough of what is random. */
export function shortId(id: string): string {
  const cut = id.lastIndexOf("-");
  return cut > 0 && id.length - cut > 12 ? `${id.slice(0, cut)}-${id.slice(cut + 1, cut + 7)}…` : id;
}

/** A number with as many digits as say something. */
export const short = (number: number): string => String(Number(number.toFixed(4)));

export const percent = (part: number): string => `${(100 * part).toFixed(part > 0 && part < 0.1 ? 1 : 0)} %`;

/** The value below which this part of the numbers lies; they need not be sorted. */
export function quantile(values: number[], part: number): number {
  if (!values.length) return NaN;
  const sorted = [...values].sort((a, b) => a - b);
  const at = (sorted.length - 1) * part;
  const low = Math.floor(at);
  return sorted[low]! + (sorted[Math.min(low + 1, sorted.length - 1)]! - sorted[low]!) * (at - low);
}
