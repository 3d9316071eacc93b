import sharp from 'sharp';
import { Random } from '../../base/random.js';
import type { Picture } from '../picture.js';

/** A picture of random pixels. */
export function noise(width: number, height: number, seed = 1): Picture {
  const random = new Random(seed);
  return { width, height, data: Uint8Array.from({ length: width * height * 3 }, () => random.integer(256)) };
}

export const pngOf = async ({ width, height, data }: Picture): Promise<Uint8Array> =>
  new Uint8Array(
    await sharp(data, { raw: { width, height, channels: 3 } })
      .png()
      .toBuffer(),
  );
