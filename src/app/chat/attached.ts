import type { ContentPart } from '../../index.js';

/** What goes with a question: a text, or a picture that a model which takes pictures is shown. */
export interface Attached {
  readonly name: string;
  readonly text?: string;
  /** A `data:` URL of a PNG, JPEG, WebP or GIF. */
  readonly image?: string;
  /** Of a picture, where it is large: the copy that `keep` keeps. */
  readonly small?: string;
  /** Such a copy took the picture's place, or nothing did: there was no room. */
  readonly reduced?: boolean;
}

const PICTURE = /^data:image\/(png|jpeg|webp|gif);base64,/;

/** What may have been written by anybody: an address would be asked for it. */
export const isAttached = (value: unknown): value is Attached => {
  const { name, text, image, small } = (value ?? {}) as Record<string, unknown>;
  const isPicture = (url: unknown): boolean => url === undefined || (typeof url === 'string' && PICTURE.test(url));
  return (
    typeof name === 'string' && (text === undefined || typeof text === 'string') && [image, small].every(isPicture)
  );
};

/** What the model is told of a question: pictures first, then texts. @param pictures whether it takes any */
export function contentOf(
  { content, attached = [] }: { readonly content: string; readonly attached?: readonly Attached[] },
  pictures: boolean,
): string | readonly ContentPart[] {
  const files = attached.flatMap(({ name, text }) => (text === undefined ? [] : [`--- ${name} ---\n${text}\n---`]));
  const text = [...files, content].filter((part) => part !== '').join('\n\n');
  const images = attached.flatMap(({ image }) =>
    image !== undefined && pictures ? [{ type: 'image', image } as const] : [],
  );
  return images.length === 0 ? text : [...images, ...(text === '' ? [] : [{ type: 'text', text } as const])];
}

/** The same as a text, with `placeholder` for each picture. */
export const promptOf = (content: string | readonly ContentPart[], placeholder = ''): string =>
  typeof content === 'string'
    ? content
    : content.map((part) => (part.type === 'text' ? part.text : placeholder)).join('');
