import type { Automaton } from './automaton.js';
import type { CodePoints } from './code_points.js';

/** What a rule of a grammar, or a part of one, stands for: texts of symbols. Bytes are symbols, and from 256 on marks, tokens that are no text. */
export type Expression =
  | { readonly kind: 'text'; readonly symbols: readonly number[] }
  | { readonly kind: 'one'; readonly of: CodePoints }
  | { readonly kind: 'all'; readonly parts: readonly Expression[] }
  | { readonly kind: 'any'; readonly options: readonly Expression[] }
  | { readonly kind: 'repeat'; readonly part: Expression; readonly least: number; readonly most: number }
  | { readonly kind: 'rule'; readonly number: number }
  /** Texts of an automaton, each character written as `write` says: alone in its rule. */
  | { readonly kind: 'states'; readonly of: Automaton; readonly write: (of: CodePoints) => Expression };

const encoder = new TextEncoder();

export const symbolOfMark = (index: number): number => 256 + index;
/** The mark of this number. */
export const markOf = (index: number): Expression => ({ kind: 'text', symbols: [symbolOfMark(index)] });
export const text = (value: string): Expression => ({ kind: 'text', symbols: [...encoder.encode(value)] });
/** A character of the set. */
export const oneOf = (of: CodePoints): Expression => (of.length === 0 ? NEVER : { kind: 'one', of });

export const NOTHING = text('');
/** Stands for no text at all, not even the empty one. */
export const NEVER: Expression = { kind: 'any', options: [] };

export function all(...parts: readonly Expression[]): Expression {
  const flat = parts.flatMap((part) => (part.kind === 'all' ? part.parts : isNothing(part) ? [] : [part]));
  if (flat.some(isNever)) return NEVER;
  return flat.length === 1 ? flat[0]! : flat.length === 0 ? NOTHING : { kind: 'all', parts: flat };
}

export const any = (...options: readonly Expression[]): Expression => anyOf(options);

export function anyOf(options: readonly Expression[]): Expression {
  const flat = options.flatMap((option) => (option.kind === 'any' ? option.options : option));
  return flat.length === 1 ? flat[0]! : { kind: 'any', options: flat };
}

export function repeat(part: Expression, least: number, most: number): Expression {
  if (most < least || (isNever(part) && least > 0)) return NEVER;
  if (most === 0 || isNever(part)) return NOTHING;
  // Up to so many of up to so many.
  if (part.kind === 'repeat' && (part.least === 0 || (part.least === 1 && (part.most === Infinity || least <= 1)))) {
    return repeat(part.part, part.least * least, part.most * most);
  }
  return least === 1 && most === 1 ? part : { kind: 'repeat', part, least, most };
}

export const optional = (part: Expression): Expression => (isNever(part) ? NOTHING : repeat(part, 0, 1));

const isNothing = (part: Expression): boolean => part.kind === 'text' && part.symbols.length === 0;
const isNever = (part: Expression): boolean => part.kind === 'any' && part.options.length === 0;
