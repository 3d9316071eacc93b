/** What a recording may be at most (one that isn't a WAV is far smaller), and how many a prompt may have. */
export const SOUND_LIMITS = { bytes: 64 * 2 ** 20, compressedBytes: 4 * 2 ** 20, seconds: 30, sounds: 16 } as const;

/** Samples a second that encoders hear. */
export const SAMPLE_RATE = 16_000;
