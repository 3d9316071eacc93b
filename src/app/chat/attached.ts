import type { ContentPart } from '../../index.js';

/** What goes with a question: a text, or a picture or a recording, for models that take them. */
export interface Attached {
  readonly name: string;
  readonly text?: string;
  /** A `data:` URL of a PNG, JPEG, WebP or GIF. */
  readonly image?: string;
  /** A `data:` URL of a WAV file; `keep` keeps none. */
  readonly audio?: string;
  /** Of a picture, where it is large: the copy that `keep` keeps. */
  readonly small?: string;
  /** Such a copy took the picture's place, or nothing did: there was no room. */
  readonly reduced?: boolean;
}

const SOUND = /^data:audio\/wav;base64,/;
const PICTURE = /^data:image\/(png|jpeg|webp|gif);base64,/;

/** What may have been written by anybody: an address would be asked for it. */
export const isAttached = (value: unknown): value is Attached => {
  const { name, text, image, small, audio } = (value ?? {}) as Record<string, unknown>;
  const isPicture = (url: unknown): boolean => url === undefined || (typeof url === 'string' && PICTURE.test(url));
  return (
    typeof name === 'string' &&
    (text === undefined || typeof text === 'string') &&
    [image, small].every(isPicture) &&
    (audio === undefined || (typeof audio === 'string' && SOUND.test(audio)))
  );
};

/** What a model takes beside text. */
export type Takes = Readonly<Record<'images' | 'sounds', boolean>>;

/** Whether there is something that a model can't be given. */
export const isUntaken = (attached: readonly Attached[], takes: Takes): boolean =>
  attached.some(({ image, audio }) => (image !== undefined && !takes.images) || (audio !== undefined && !takes.sounds));

/** What the model is told of a question: pictures and recordings first, then texts. */
export function contentOf(
  { content, attached = [] }: { readonly content: string; readonly attached?: readonly Attached[] },
  takes: Takes,
): string | readonly ContentPart[] {
  const files = attached.flatMap(({ name, text }) => (text === undefined ? [] : [`--- ${name} ---\n${text}\n---`]));
  const text = [...files, content].filter((part) => part !== '').join('\n\n');
  const media = attached.flatMap(({ image, audio }): ContentPart[] => [
    ...(image !== undefined && takes.images ? [{ type: 'image', image } as const] : []),
    ...(audio !== undefined && takes.sounds ? [{ type: 'audio', audio } as const] : []),
  ]);
  return media.length === 0 ? text : [...media, ...(text === '' ? [] : [{ type: 'text', text } as const])];
}

/** The same as a text, with placeholders for pictures and recordings. */
export const promptOf = (content: string | readonly ContentPart[], image = '', audio = ''): string =>
  typeof content === 'string'
    ? content
    : content.map((part) => (part.type === 'text' ? part.text : part.type === 'audio' ? audio : image)).join('');
