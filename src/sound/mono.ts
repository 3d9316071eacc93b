/** The mean of a recording's channels. */
export function monoOf(
  recording: Pick<AudioBuffer, 'length' | 'numberOfChannels' | 'getChannelData'>,
): Float32Array<ArrayBuffer> {
  const { length, numberOfChannels: channels } = recording;
  const samples = new Float32Array(length);
  for (let channel = 0; channel < channels; channel++) {
    const own = recording.getChannelData(channel);
    for (let i = 0; i < length; i++) samples[i]! += own[i]! / channels;
  }
  return samples;
}
