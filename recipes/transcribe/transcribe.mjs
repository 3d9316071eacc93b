// node transcribe.mjs FILE.wav: what is said in a recording, as it is written down. Longer ones go piece by piece.
import { readFile } from 'node:fs/promises';
import { load } from 'splitkv';

const MODEL = process.env.MODEL ?? 'google/gemma-4-E2B-it';
const [file] = process.argv.slice(2);
if (file === undefined)
  throw new Error(
    'say a file: node transcribe.mjs speech.wav (ffmpeg -i speech.mp3 -ac 1 -ar 16000 -c:a pcm_s16le speech.wav)',
  );
const QUESTION = 'Transcribe the following speech segment in its original language. Only output the transcription.';
const [RATE, SECONDS] = [16_000, 30];

const wav = await readFile(file);
const data = wav.indexOf('data', 12, 'latin1') + 8;
const [channels, rate, bits] = [wav.readUInt16LE(22), wav.readUInt32LE(24), wav.readUInt16LE(34)];
if (data < 44 || channels !== 1 || rate !== RATE || bits !== 16)
  throw new Error('expected one channel of 16 kHz in 16 bits');
const samples = Float32Array.from(
  { length: (wav.length - data) >> 1 },
  (_, i) => wav.readInt16LE(data + 2 * i) / 32_768,
);

const model = await load(MODEL, { sound: true });
for (let first = 0; first < samples.length; first += SECONDS * RATE) {
  const audio = samples.slice(first, first + SECONDS * RATE);
  const content = [
    { type: 'text', text: QUESTION },
    { type: 'audio', audio },
  ];
  const answer = model.generate({ messages: [{ role: 'user', content }] }, { temperature: 0, maxTokens: 300 });
  for await (const piece of answer) process.stdout.write(piece);
  process.stdout.write('\n');
}
await model.dispose();
