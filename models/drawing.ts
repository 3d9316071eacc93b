/** Pictures as models/tiny-vlm was trained on (models/train/pictures.py), and what there is to say of them. */

export const SHAPES = ['circle', 'square', 'triangle', 'cross'] as const;
const COLORS = {
  red: [220, 40, 40],
  green: [40, 170, 60],
  blue: [50, 80, 220],
  yellow: [240, 200, 40],
  purple: [150, 50, 170],
} as const;
export const COLOR_NAMES = Object.keys(COLORS) as (keyof typeof COLORS)[];
/** Cells of three by three, row by row. */
export const PLACES = [
  'at the top left',
  'at the top',
  'at the top right',
  'at the left',
  'in the middle',
  'at the right',
  'at the bottom left',
  'at the bottom',
  'at the bottom right',
] as const;

/** Numbers in `SHAPES`, `COLOR_NAMES` and `PLACES`. */
export type Thing = readonly [shape: number, color: number, place: number];

/** A thing of which no picture in training had one. */
export const isHeldOut = ([shape, color, place]: Thing): boolean => (7 * shape + 3 * color + 5 * place) % 11 === 0;

const INSIDE: readonly ((x: number, y: number) => boolean)[] = [
  (x, y) => Math.abs(x * x + y * y - 0.65) <= 0.35,
  (x, y) => Math.max(Math.abs(x), Math.abs(y)) <= 0.85,
  (x, y) => y <= 0.8 && 2 * Math.abs(x) <= y + 1,
  (x, y) => Math.min(Math.abs(x), Math.abs(y)) <= 0.3 && Math.max(Math.abs(x), Math.abs(y)) <= 1,
];

/** Red, green and blue of each pixel, row by row; `ground`: the grey behind the things. */
export function draw(
  things: readonly Thing[],
  { width, height, ground }: { readonly width: number; readonly height: number; readonly ground: number },
): Uint8Array<ArrayBuffer> {
  const data = new Uint8Array(width * height * 3).fill(ground);
  for (const [shape, color, place] of things) {
    const paint = Object.values(COLORS)[color]!;
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++) {
        const dx = (x + 0.5) / width - ((place % 3) + 0.5) / 3;
        const dy = (y + 0.5) / height - (Math.floor(place / 3) + 0.5) / 3;
        if (INSIDE[shape]!(dx / 0.125, dy / 0.125)) data.set(paint, (y * width + x) * 3);
      }
    }
  }
  return data;
}

const nameOf = ([shape, color]: Thing): string => `${COLOR_NAMES[color]!} ${SHAPES[shape]!}`;

/** What the model answers to `what is in the picture?`. @param things in the order of their places */
export function described(things: readonly Thing[]): string {
  const said = things.map((thing) => `a ${nameOf(thing)} ${PLACES[thing[2]]!}`);
  return `${said.length > 1 ? `${said.slice(0, -1).join(', ')} and ` : ''}${said.at(-1)!}.`;
}

/** Questions about one of a picture's things, and their answers. */
export function questions(things: readonly Thing[], thing: Thing): readonly (readonly [string, string])[] {
  const place = PLACES[thing[2]]!;
  const count = ['nothing', 'one', 'two', 'three'][things.length]!;
  return [
    ['what is in the picture?', described(things)],
    [`Where is the ${nameOf(thing)}?`, `${place}.`],
    [`What is ${place}?`, `a ${nameOf(thing)}.`],
    [`What shape is ${COLOR_NAMES[thing[1]]!}?`, `a ${SHAPES[thing[0]]!}.`],
    ['how many shapes are there?', `${count}.`],
    [`is there a ${nameOf(thing)}?`, 'yes.'],
  ];
}
