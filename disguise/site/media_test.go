package site

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"heddle/lab/peer"
)

// encrypted is a film of ffmpeg with Common Encryption: its initialisation segment, and the first segment with samples.
func encrypted(t *testing.T) (beginning, segment []byte) {
	t.Helper()
	for _, program := range []string{"ffmpeg", "ffprobe"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("typed skip:", peer.ErrMissing, program+": apt-get install ffmpeg")
		}
	}
	name := filepath.Join(t.TempDir(), "film.mp4")
	if out, err := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc=duration=2:size=64x64:rate=10", "-c:v", "libx264", "-g", "10",
		"-pix_fmt", "yuv420p", "-encryption_scheme", "cenc-aes-ctr", "-encryption_key", "00112233445566778899aabbccddeeff", "-encryption_kid", "0123456789abcdef0123456789abcdef",
		"-movflags", "frag_keyframe+empty_moov+default_base_moof", name).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	film, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	first := bytes.Index(film, []byte("moof")) - 4
	second := bytes.Index(film[first+8:], []byte("moof")) + first + 8 - 4
	return film[:first], withVectors(film[first:second])
}

// withVectors adds the vectors of the samples to a segment, which ffmpeg leaves out of fragments (ISO/IEC 23001-7, section 7.2).
func withVectors(segment []byte) []byte {
	traf, trun := bytes.Index(segment, []byte("traf"))-4, bytes.Index(segment, []byte("trun"))-4
	end := trun + int(binary.BigEndian.Uint32(segment[trun:]))
	samples := binary.BigEndian.Uint32(segment[trun+12:])
	senc := binary.BigEndian.AppendUint32(nil, 16+8*samples)
	senc = binary.BigEndian.AppendUint32(append(append(senc, "senc"...), 0, 0, 0, 0), samples)
	for n := range samples {
		senc = binary.BigEndian.AppendUint64(senc, uint64(n))
	}
	out := slices.Concat(segment[:end], senc, segment[end:])
	for _, at := range []int{0, traf, trun + 16} { // the sizes of moof and traf, and where the samples are
		binary.BigEndian.PutUint32(out[at:], binary.BigEndian.Uint32(out[at:])+uint32(len(senc)))
	}
	return out
}

// A segment is judged as it is played: behind the initialisation segment of its site.
func TestMediaIsJudgedBehindItsBeginning(t *testing.T) {
	beginning, segment := encrypted(t)
	part := Object{Method: "GET", URL: "/1.m4s", Status: 200, Type: "video/iso.segment", Header: []Field{{"cache-control", "private"}}, Body: segment}
	whole := Object{Method: "GET", URL: "/init.mp4", Status: 200, Type: "video/mp4", Body: beginning}
	for _, objects := range [][]Object{{part, whole}, {part}} {
		s := &Site{Origin: "http://a.example", Pages: []Page{{}}, Objects: objects}
		r, err := Check(t.Context(), s)
		if err != nil || r.Failed > 0 || len(r.Objects) != 1 || r.Objects[0].Capacity < len(segment)/2 {
			t.Fatalf("%+v, %v", r, err)
		}
		judged := slices.Equal(r.Objects[0].Judges, []string{"ffprobe"})
		refused := slices.Equal(r.Unjudged, []Unjudged{{"video/iso.segment", 1, "the programs of ffmpeg refuse what was recorded"}})
		if judged != (len(objects) == 2) || refused == judged {
			t.Errorf("with %d objects: %+v, %+v", len(objects), r.Objects, r.Unjudged)
		}
	}
	j := judges(part.Type)[0].behind([][]byte{nil, beginning})
	if err := j.same(t.Context(), segment, segment[:len(segment)-200]); err == nil || err == errNoVerdict {
		t.Errorf("a segment that is cut: %v", err)
	}
}
