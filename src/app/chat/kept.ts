import { valueIn } from '../../base/lists.js';
import { checkMessages, randomNumber, type SavedChat, type ShownMessage } from './session.js';

/** A conversation as tabs share it: each turn has a name, by which those of several tabs are put together. */
export interface Kept extends SavedChat {
  /** Of the turns, in the order in which they were said. */
  readonly ids?: readonly string[];
  /** Turns that somebody took back: no tab brings them again. */
  readonly gone?: readonly string[];
}

/** More that were taken back are forgotten: no tab has them any more. */
const MOST_GONE = 500;

/** The names of turns, which go by the time. */
export class TurnNames {
  readonly #names = new WeakMap<ShownMessage, string>();
  #last = 0;
  /** All that were ever here, and those that are to go wherever they are. */
  readonly #known = new Set<string>();
  readonly #gone = new Set<string>();
  /** Those that another tab said while this one was open. */
  readonly #foreign = new Set<string>();

  /** What this tab has. Turns that have gone since it was asked last were taken back. */
  of(saved: SavedChat): Required<Pick<Kept, 'ids' | 'gone'>> & SavedChat {
    const ids = answersOf(saved).map((answer) => this.#nameOf(answer));
    for (const id of this.#known) if (!ids.includes(id)) this.#gone.add(id);
    for (const id of ids) this.#known.add(id);
    return { ...saved, ids, gone: [...this.#gone] };
  }

  /** What is shown now came by these names. @param live while this tab was open */
  take({ messages, ids = [], gone = [] }: Kept, live: boolean): void {
    if (live) for (const id of ids) if (!this.#known.has(id)) this.#foreign.add(id);
    for (const [turn, answer] of answersOf({ messages }).entries()) this.#names.set(answer, ids[turn]!);
    for (const id of ids) this.#known.add(id);
    for (const id of gone) this.#gone.add(id);
  }

  /** The page sets other messages: turns that it says again are the same ones, and what other tabs said isn't this page's to take back. */
  replace(before: SavedChat, after: SavedChat): void {
    const left = answersOf(before).map((answer, turn) => ({ answer, text: textOf(before, turn) }));
    for (const [turn, answer] of answersOf(after).entries()) {
      const same = left.findIndex(({ text }) => text === textOf(after, turn));
      if (same >= 0) this.#names.set(answer, this.#nameOf(left.splice(same, 1)[0]!.answer));
    }
    for (const id of this.#foreign) this.#known.delete(id);
  }

  /** Another tab has begun anew. */
  forget(): void {
    for (const id of this.#known) this.#gone.add(id);
  }

  #nameOf(answer: ShownMessage): string {
    return valueIn(this.#names, answer, () => {
      this.#last = Math.max(Date.now(), this.#last + 1);
      return `${this.#last.toString(36).padStart(9, '0')}-${randomNumber().toString(36)}`;
    });
  }
}

const answersOf = ({ messages }: SavedChat): ShownMessage[] => messages.filter((_, at) => at % 2 === 1);

const textOf = ({ messages }: SavedChat, turn: number): string =>
  JSON.stringify(messages.slice(turn * 2, turn * 2 + 2).map(({ content }) => content));

/**
 * As it is kept: without recordings, and of large pictures their copies, with which the conversation goes on from then.
 * @param pictures false keeps none
 */
export function keptText({ talk, ...kept }: Kept, pictures = true): string {
  let isWhole = true;
  const reduced = ({ attached, versions, ...message }: ShownMessage): ShownMessage => ({
    ...message,
    ...(versions && { versions: { ...versions, others: versions.others.map((other) => other.map(reduced)) } }),
    ...(attached && {
      attached: attached.map((one) => {
        const { image, small, audio, ...rest } = one;
        if (audio === undefined && (image === undefined || (pictures && small === undefined))) return one;
        isWhole = false;
        return { ...rest, ...(pictures && small !== undefined && { image: small }), reduced: true };
      }),
    }),
  });
  return JSON.stringify({ ...kept, messages: kept.messages.map(reduced), ...(talk && isWhole && { talk }) });
}

/** @throws for what isn't a conversation */
export function readKept(text: string): Kept {
  const { messages, talk, ids, gone } = JSON.parse(text) as Kept;
  const checked = checkMessages(messages);
  const turns = checked.length / 2;
  // What earlier versions kept has no names: every tab gives it the same.
  const named = Array.isArray(ids) && ids.length === turns ? ids.map(String) : null;
  return {
    messages: checked,
    ids: named ?? Array.from({ length: turns }, (_, turn) => `0-${turn.toString().padStart(6, '0')}`),
    gone: Array.isArray(gone) ? gone.map(String) : [],
    ...(talk && { talk }),
  };
}

/** The turns of both, by time, without those that either took back. What the model was told goes with the one that has just these. */
export function mergeKept(mine: Kept, other: Kept): Required<Pick<Kept, 'ids' | 'gone'>> & Kept {
  const gone = [...new Set([...(other.gone ?? []), ...(mine.gone ?? [])])].toSorted().slice(-MOST_GONE);
  const turns = new Map<string, readonly ShownMessage[]>();
  for (const { messages, ids = [] } of [other, mine]) {
    for (const [turn, id] of ids.entries()) {
      if (!gone.includes(id)) turns.set(id, messages.slice(turn * 2, turn * 2 + 2));
    }
  }
  const ids = [...turns.keys()].toSorted();
  // The one whose turns these are; of equal ones this tab's.
  const whole = [mine, other].find((one) => JSON.stringify(one.ids ?? []) === JSON.stringify(ids));
  return {
    messages: whole?.messages ?? ids.flatMap((id) => turns.get(id) ?? []),
    ids,
    gone,
    ...(whole?.talk && { talk: whole.talk }),
  };
}

/** Whether the same turns are there, and the same were taken back. */
export const sameTurns = (one: Kept, other: Kept): boolean =>
  JSON.stringify([one.ids ?? [], one.gone ?? []]) === JSON.stringify([other.ids ?? [], other.gone ?? []]);
