// Package survey tests `heddle overlay` in a small Internet: scamper finds which networks lie on the paths, by the uplink
// asked for and as one flow, and those paths are chosen that no network sees together.
//
// It holds tests only.
package survey
