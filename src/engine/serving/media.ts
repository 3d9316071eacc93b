import type { ImagePrompt, Prompt } from '../contracts/api.js';
import { KINDS, type Media, mediaIn, withoutMedia } from './prompt_tokens.js';

/** A prompt with its media apart: parts of messages say only where they are. */
export function apart(prompt: Prompt): Media & { readonly plain: Exclude<Prompt, ImagePrompt> } {
  const { images, sounds } = mediaIn(prompt);
  if (typeof prompt !== 'object' || !('messages' in prompt || 'prompt' in prompt))
    return { plain: prompt, images, sounds };
  if ('prompt' in prompt) return { plain: prompt.prompt, images, sounds };
  return {
    plain: { ...prompt, messages: prompt.messages.map(withoutMedia) as typeof prompt.messages },
    images,
    sounds,
  };
}

/** A text, cut at what stands for pictures and recordings. */
export function cutAtMedia(
  text: string,
  marks: Readonly<Partial<Record<keyof Media, string>>>,
): { readonly kind?: keyof Media; readonly text: string }[] {
  const kinds = new Map(KINDS.flatMap((kind) => (marks[kind] === undefined ? [] : [[marks[kind], kind] as const])));
  const escaped = [...kinds.keys()].map((mark) => mark.replace(/[$()*+.?[\\\]^{|}]/g, '\\$&'));
  return text.split(new RegExp(`(${escaped.join('|')})`)).map((piece) => {
    const kind = kinds.get(piece);
    return { text: piece, ...(kind && { kind }) };
  });
}
