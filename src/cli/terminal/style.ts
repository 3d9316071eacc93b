import { styleText } from 'node:util';

/** Text in a colour, or as it is. */
export type Style = (format: 'bold' | 'dim' | 'red' | 'green' | 'yellow' | 'cyan', text: string) => string;

export const plain: Style = (_, text) => text;

export const styleWith = (colour: boolean): Style =>
  colour ? (format, text) => styleText(format, text, { validateStream: false }) : plain;

/**
 * Terminals have colours, unless NO_COLOR (https://no-color.org) or TERM=dumb says otherwise; FORCE_COLOR gives them to anything, and
 * FORCE_COLOR=0 to nothing. NO_COLOR wins.
 */
export function hasColour(
  stream: { readonly isTTY?: boolean },
  env: Readonly<Record<string, string | undefined>> = process.env,
): boolean {
  if (env['NO_COLOR']) return false;
  const forced = env['FORCE_COLOR'];
  if (forced !== undefined) return forced !== '0' && forced !== 'false';
  return stream.isTTY === true && env['TERM'] !== 'dumb';
}
