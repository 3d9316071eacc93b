import { count } from '../../base/lists.js';
import { CHUNK_TOKENS, MERGE_LANES } from '../owner.js';
import { type Plan, planName } from '../plan.js';
import { planTopology } from '../topology.js';

/** What to tell whoever asked for ranks that split sequences, where some have nothing of one, however long it gets. */
export function idleOfSplit(plan: Plan, contextLength: number): string | undefined {
  const split = Math.max(...planTopology(plan).stages.map((stage) => stage.split));
  const chunks = Math.ceil(contextLength / CHUNK_TOKENS);
  const busy = Math.min(split, chunks, MERGE_LANES);
  if (busy === split) return undefined;
  const why =
    chunks < Math.min(split, MERGE_LANES)
      ? `a context of ${contextLength} tokens, shorter than ${split} x ${CHUNK_TOKENS}, has ${count(chunks, 'chunk')}`
      : `a sequence has ${MERGE_LANES} merge lanes`;
  return (
    `${planName(plan)}: ${split} ranks split each sequence by chunks of ${CHUNK_TOKENS} tokens, and ${why}: ` +
    `${count(split - busy, 'rank')} of them ${split - busy === 1 ? 'has' : 'have'} nothing of one. Several sequences at once begin on ` +
    `different ranks; for one use ${busy === 1 ? 'another plan' : `${busy} ranks`}`
  );
}
