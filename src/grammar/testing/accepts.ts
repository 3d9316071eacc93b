import { expect } from 'vitest';
import { Random } from '../../base/random.js';
import type { AnswerFrame } from '../answer_frame.js';
import { Constraints } from '../constraints.js';
import type { TextForm } from '../text_form.js';

const encoder = new TextEncoder();
const isAllowed = (allowed: Uint32Array, id: number): boolean => ((allowed[id >>> 5]! >>> (id & 31)) & 1) === 1;

/** A usage error that says this. */
export const usage = (message: string): unknown =>
  expect.objectContaining({ code: 'usage', message: expect.stringContaining(message) as string });

/** Forms over tokens: a token that ends texts, all bytes, and these pieces. */
export class TestForms {
  readonly #tokens: readonly (Uint8Array | undefined)[];
  readonly constraints: Constraints;

  constructor(pieces: readonly string[]) {
    this.#tokens = [
      undefined,
      ...Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte)),
      ...pieces.map((piece) => encoder.encode(piece)),
    ];
    this.constraints = new Constraints({
      size: this.#tokens.length,
      bytesOf: (id) => this.#tokens[id],
      endIds: [0],
    });
  }

  /** Which of the texts the form allows, each cut into tokens at random: by the masks, and by what is taken. */
  async accepted(form: TextForm, texts: readonly string[], seed: number, frame?: AnswerFrame): Promise<boolean[]> {
    const random = new Random(seed);
    const compiled = this.constraints.compile(form, frame)!;
    const answer = compiled.start();
    const results: boolean[] = [];
    for (const text of texts) {
      answer.reset();
      let { allowed } = answer.first;
      const rest = encoder.encode(text);
      let isOf: boolean | undefined;
      for (let at = 0; at < rest.length && isOf === undefined;) {
        const fits = this.#tokens.flatMap((bytes, id) =>
          bytes && bytes.every((byte, i) => rest[at + i] === byte) ? [id] : [],
        );
        const id = fits[random.integer(fits.length)]!;
        if (!isAllowed(allowed, id)) {
          isOf = false;
          break;
        }
        answer.accept(id);
        at += this.#tokens[id]!.length;
        const next = answer.next();
        if (next) ({ allowed } = next);
        else isOf = at === rest.length;
      }
      results.push(isOf ?? isAllowed(allowed, 0));
    }
    return results;
  }
}
