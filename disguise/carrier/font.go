package carrier

import "encoding/binary"

// inFont finds the private data of WOFF2 (W3C, WOFF File Format 2.0, section 8) if they look random. Browsers never read them, and few
// fonts have them.
func inFont(file []byte) []slot {
	const head = 48 // bytes
	if len(file) < head || string(file[:4]) != "wOF2" || uint64(binary.BigEndian.Uint32(file[8:])) != uint64(len(file)) {
		return nil
	}
	at, size := uint64(binary.BigEndian.Uint32(file[40:])), uint64(binary.BigEndian.Uint32(file[44:]))
	if at < head || size < leastBinary || at+size != uint64(len(file)) || !looksRandom(file[at:], raw{}) {
		return nil
	}
	return []slot{{at: int(at), size: int(size), in: all{raw{}}}}
}
