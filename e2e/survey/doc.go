// Package survey tests `heddle overlay` in a small Internet: scamper finds the networks on the paths, by the given
// uplink and as one flow, and paths are chosen that no network sees together. Tests only.
package survey
