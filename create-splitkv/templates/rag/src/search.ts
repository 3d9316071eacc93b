import type { Model } from 'splitkv';
import { DOCUMENTS } from './documents';

export interface Passage {
  readonly title: string;
  readonly text: string;
}

/** Characters of a passage, about. */
const PASSAGE = 400;

/** Passages of whole sentences. */
function passages(): Passage[] {
  return DOCUMENTS.flatMap(({ title, text }) => {
    const found: Passage[] = [];
    let piece = '';
    for (const sentence of text.split(/(?<=[.!?])\s+/)) {
      if (piece !== '' && piece.length + sentence.length > PASSAGE) {
        found.push({ title, text: piece });
        piece = '';
      }
      piece += `${piece === '' ? '' : ' '}${sentence}`;
    }
    return piece === '' ? found : [...found, { title, text: piece }];
  });
}

/** Vectors have length 1: their product is how alike two texts are. */
const alike = (a: Float32Array, b: Float32Array): number => a.reduce((sum, value, index) => sum + value * b[index]!, 0);

/** A search over the documents, by the vectors that `embedder` gives. */
export async function openSearch(embedder: Model): Promise<(question: string, count: number) => Promise<Passage[]>> {
  const all = passages();
  const { embeddings: vectors } = await embedder.embed(all.map(({ text }) => text));
  return async (question, count) => {
    const { embeddings } = await embedder.embed([question]);
    return all
      .map((passage, index) => ({ passage, score: alike(vectors[index]!, embeddings[0]!) }))
      .sort((a, b) => b.score - a.score)
      .slice(0, count)
      .map(({ passage }) => passage);
  };
}
