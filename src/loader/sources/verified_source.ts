import { ioError, withAbort } from '../../base/errors.js';
import { valueIn } from '../../base/lists.js';
import { parseIntegrity } from './integrity.js';
import { around, missingFile, type OnProgress, type Source } from '../source.js';
import { hashFile } from './whole_hash.js';

export interface VerifyOptions {
  /** False leaves weight files out, as long as their server doesn't say that they are others: to check them is to read them. */
  readonly weights?: boolean | undefined;
  /** Told of files of more than one piece, as they are read. */
  readonly onProgress?: OnProgress | undefined;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Reads of each file named in `integrity` begin when all of it has been read once and has the SHA-256 named there (hex, or
 * `sha256-` and base64); what is cached and was checked before isn't read again. Other files are read as they are.
 * @throws SplitkvError `io` where the source has no file of a name; reading throws `io` where a file is another
 */
export async function verifiedSource(
  source: Source,
  integrity: Readonly<Record<string, string>>,
  { weights = true, onProgress, signal }: VerifyOptions = {},
): Promise<Source> {
  const expected = parseIntegrity(integrity);
  for (const file of expected.keys()) {
    if ((await source.size(file, signal)) === undefined) {
      const absence = source.absence?.(file);
      throw missingFile(source, file, `integrity names it${absence ? `; ${absence}` : ''}`);
    }
  }
  const checks = new Map<string, Promise<void>>();

  const check = async (file: string, sha256: string): Promise<void> => {
    const told = await source.sha256?.(file, signal);
    if (told !== undefined && told !== sha256) {
      throw ioError(`${file} of ${source.name}: the server has SHA-256 ${told}, integrity says ${sha256}`);
    }
    if (!weights && /\.(safetensors|gguf)$/i.test(file)) return;
    const size = (await source.size(file, signal)) ?? 0;
    const onBytes = (loadedBytes: number): void => onProgress?.({ file, loadedBytes, totalBytes: size });
    const found = await (source.hashes
      ? source.hashes(file, sha256, onBytes, signal)
      : hashFile(source, file, size, onBytes, signal));
    if (found !== sha256) {
      throw ioError(
        `${file} of ${source.name} is damaged, or isn't the version that integrity names: its SHA-256 is ${found}; expected ${sha256}`,
      );
    }
  };
  /** Once; what failed is tried again by the next reader. */
  const checked = (file: string): Promise<void> => {
    const sha256 = expected.get(file);
    if (sha256 === undefined) return Promise.resolve();
    return valueIn(checks, file, () => {
      const underway = check(file, sha256);
      underway.catch(() => checks.delete(file));
      return underway;
    });
  };

  return around(source, {
    async read(file, start, end, own) {
      await withAbort(checked(file), own, `reading ${file}`);
      return source.read(file, start, end, own);
    },
  });
}
