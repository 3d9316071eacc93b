/**
 * Grammars are run over symbols, each an ASCII character: XGrammar's sets of other characters allow more than they say. A byte below 127
 * is its own symbol; 127 is two of DEL; a byte from 128 on, as UTF-8 has for all other characters, is DEL and the byte less 128. 193 and
 * 255, which UTF-8 never has, are as 192, which it never has either: what 193 would be begins the symbols of marks, tokens that are no text.
 */
import { ALL, type CodePoints, intersection } from './code_points.js';

const DEL = 0x7f;
const encoder = new TextEncoder();

const symbolsOf: readonly string[] = Array.from({ length: 256 }, (_, byte) =>
  byte < DEL
    ? String.fromCharCode(byte)
    : String.fromCharCode(DEL, byte === DEL ? DEL : byte === 193 || byte === 255 ? 64 : byte - 128),
);

export const symbolsOfBytes = (bytes: Iterable<number>): string =>
  Array.from(bytes, (byte) => symbolsOf[byte]!).join('');
/** Of the mark of this number, from 0. */
export const symbolsOfMark = (index: number): string => String.fromCharCode(DEL, 65, 33 + index);
export const symbolsOfText = (text: string): string => symbolsOfBytes(encoder.encode(text));

/** A run of sets of symbols, each inclusive. */
export type SymbolRun = readonly (readonly (readonly [first: number, last: number])[])[];

/** Runs of symbols, one of which each character of a set is. */
export function symbolRuns(set: CodePoints): SymbolRun[] {
  const runs: SymbolRun[] = [];
  const ascii = intersection(set, [[0, DEL - 1]]);
  if (ascii.length > 0) runs.push([ascii]);
  if (intersection(set, [[DEL, DEL]]).length > 0) runs.push([[[DEL, DEL]], [[DEL, DEL]]]);
  // What takes as many bytes.
  for (const [first, last] of [
    [0x80, 0x7ff],
    [0x800, 0xffff],
    [0x10000, 0x10ffff],
  ] as const) {
    // prettier-ignore
    for (const [from, to] of intersection(intersection(set, ALL), [[first, last]])) {
      for (const bytes of byteRanges([...utf8(from)], [...utf8(to)])) {
        runs.push(bytes.flatMap(([low, high]): SymbolRun => [[[DEL, DEL]], [[low - 128, high - 128]]]));
      }
    }
  }
  return runs;
}

const utf8 = (code: number): Uint8Array => encoder.encode(String.fromCodePoint(code));

type ByteRange = readonly [low: number, high: number];

/** The texts of bytes from `low` to `high`, of the same length, as products of ranges. */
function byteRanges(low: readonly number[], high: readonly number[]): ByteRange[][] {
  const [a, b] = [low[0]!, high[0]!];
  if (low.length === 1) return [[[a, b]]];
  const [restA, restB] = [low.slice(1), high.slice(1)];
  if (a === b) return byteRanges(restA, restB).map((rest): ByteRange[] => [[a, a], ...rest]);
  const [least, most] = [restA.map(() => 0x80), restA.map(() => 0xbf)];
  const wholeA = restA.every((byte) => byte === 0x80);
  const wholeB = restB.every((byte) => byte === 0xbf);
  const first = wholeA ? a : a + 1;
  const last = wholeB ? b : b - 1;
  return [
    ...(wholeA ? [] : byteRanges(restA, most).map((rest): ByteRange[] => [[a, a], ...rest])),
    ...(first <= last ? [[[first, last] as const, ...least.map((): ByteRange => [0x80, 0xbf])]] : []),
    ...(wholeB ? [] : byteRanges(least, restB).map((rest): ByteRange[] => [[b, b], ...rest])),
  ];
}
