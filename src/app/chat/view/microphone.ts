import { SOUND_LIMITS } from '../../../sound/limits.js';

/** Recorders take a moment to end. */
const MARGIN_MS = 500;

/**
 * What the microphone hears until `signal` fires, or for as long as a recording may be.
 * @throws DOMException where nobody may listen, or there is no microphone
 */
export async function record(signal: AbortSignal, name: string): Promise<File> {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
  try {
    const recorder = new MediaRecorder(stream);
    const parts: Blob[] = [];
    const ended = new Promise<void>((resolve, reject) => {
      recorder.addEventListener('dataavailable', ({ data }) => parts.push(data));
      recorder.addEventListener('stop', () => resolve());
      recorder.addEventListener('error', () => reject(new Error('the recorder failed')));
    });
    const end = (): void => {
      if (recorder.state !== 'inactive') recorder.stop();
    };
    recorder.start();
    signal.addEventListener('abort', end);
    if (signal.aborted) end();
    const timer = setTimeout(end, SOUND_LIMITS.seconds * 1000 - MARGIN_MS);
    await ended;
    clearTimeout(timer);
    return new File(parts, name, { type: recorder.mimeType || 'audio/webm' });
  } finally {
    for (const track of stream.getTracks()) track.stop();
  }
}
