package carrier

import (
	"bytes"
	"compress/zlib"
	"crypto/md5"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// document is a PDF with one page, and further objects from number 5 on.
func document(more ...string) []byte {
	content := "0.2 0.4 0.8 rg 10 10 60 40 re f"
	objects := append([]string{"<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
		"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 80 60] /Contents 4 0 R >>", withStream("", []byte(content))}, more...)
	out := bytes.NewBufferString("%PDF-1.7\n")
	table := fmt.Sprintf("xref\n0 %d\n0000000000 65535 f \n", len(objects)+1)
	for i, o := range objects {
		table += fmt.Sprintf("%010d 00000 n \n", out.Len())
		fmt.Fprintf(out, "%d 0 obj\n%s\nendobj\n", i+1, o)
	}
	start := out.Len()
	fmt.Fprintf(out, "%strailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n", table, len(objects)+1, start)
	return out.Bytes()
}

func withStream(entries string, data []byte) string {
	return fmt.Sprintf("<< %s /Length %d >>\nstream\n%s\nendstream", entries, len(data), data)
}

const attachedFile = "/Type /EmbeddedFile "

// deflated is a zlib stream.
func deflated(content []byte) []byte {
	var out bytes.Buffer
	w := zlib.NewWriter(&out)
	w.Write(content) //nolint:errcheck // a buffer takes all
	w.Close()
	return out.Bytes()
}

func documents() []example {
	const kind = "application/pdf"
	file := random(300)
	summed := func(of []byte, format string) string {
		return attachedFile + fmt.Sprintf("/Filter [ /FlateDecode ] /Params << /CheckSum <"+format+"> /Size %d >>", md5.Sum(of), len(of))
	}
	all := []example{
		{kind, "an attached file", document(withStream(attachedFile, file)), 300},
		{kind, "two attached files, one of which is compressed and has a sum", document(withStream(attachedFile, file), withStream(summed(file, "%x"), deflated(file))), 600},
		{kind, "a sum in upper case", document(withStream(summed(file, "%X"), deflated(file))), 300},
		{kind, "the sum of something else", document(withStream(summed(random(9), "%x"), deflated(file))), 0},
		{kind, "a sum that is none", document(withStream(attachedFile+"/Params << /CheckSum 5 >>", file)), 0},
		{kind, "a reference to the sum", document(withStream(attachedFile+"/Params 6 0 R", file)), 0},
		{kind, "attached text", document(withStream(attachedFile+"/Filter /FlateDecode", deflated(bytes.Repeat([]byte("text "), 99)))), 0},
		{kind, "a short attached file", document(withStream(attachedFile, file[:40])), 0},
		{kind, "another filter", document(withStream(attachedFile+"/Filter [/FlateDecode /LZWDecode]", deflated(file))), 0},
		{kind, "a file that is elsewhere", document(withStream(attachedFile+"/F (file.bin)", file)), 0},
		{kind, "no attached file", document(withStream("/Type /XObject", file)), 0},
		{kind, "an object inside of a stream", document(withStream("", []byte("9 0 obj\n"+withStream(attachedFile, file)+"\nendobj"))), 0},
		{kind, "a length elsewhere", document("<< "+attachedFile+" /Length 6 0 R>>stream\r\n"+string(file[:299])+"x\r\nendstream", "300"), 300},
		{kind, "the end of a stream inside of one", document(withStream(attachedFile, append(random(150), "\nendstream"+string(file[:140])...))), 300},
		{kind, "a comment, strings and lists", document(withStream("% >>\n/A (\\)>>(\\\\)) /B [<3e3e>[<<>>] null] /Type/EmbeddedFile", file)), 300},
		{kind, "cut", document(withStream(attachedFile, file))[:400], 0},
	}
	for name, room := range map[string]int{"open-128": 0, "open-256": 0, "open-metadata-128": 0, "locked-128": 32 + 64, "locked-256": 32 + 64, "owner-128": 96, "owner-256": 0,
		"clear-metadata-128": 64, "packed-256": 32 + 128 + 64, "rc4": 0} {
		object, err := os.ReadFile(filepath.Join("testdata", name+".pdf"))
		if err != nil {
			panic(err)
		}
		all = append(all, example{kind, name, object, room})
		if strings.HasPrefix(name, "locked") {
			all = append(all, example{kind, name + " by RC4", regexp.MustCompile("/AESV[23]").ReplaceAll(object, []byte("/V2   ")), 0})
		}
	}
	return all
}

// A reader can unpack an attached file from its compressed stream, and finds the sum that the document states.
func TestAttachedFile(t *testing.T) {
	rewind()
	for _, size := range []int{64, 300, 70000, 200000} {
		file := random(size)
		packed := deflated(file)
		object := document(withStream(attachedFile+fmt.Sprintf("/Filter /FlateDecode /Params << /CheckSum <%x> >>", md5.Sum(file)), packed))
		payload := random(size)
		changed, err := For("application/pdf").Embed(object, payload)
		if err != nil {
			t.Fatal(err)
		}
		at := bytes.Index(object, packed)
		r, err := zlib.NewReader(bytes.NewReader(changed[at : at+len(packed)]))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, payload) {
			t.Errorf("%d bytes: %v", size, err)
		}
		if !bytes.Contains(changed, fmt.Appendf(nil, "<%x>", md5.Sum(payload))) {
			t.Errorf("%d bytes: the sum is another one", size)
		}
	}
}

// samePages has readers compare two documents. The password of those that have one is a secret.
func samePages(t *testing.T, a, b []byte) {
	t.Helper()
	for _, arguments := range [][]string{{"qpdf", "--password=secret", "--show-xref"}, {"qpdf", "--check"}, {"pdftoppm", "-r", "36"}} {
		needs(t, arguments[0], map[string]string{"qpdf": "qpdf", "pdftoppm": "poppler-utils"}[arguments[0]])
		before, errA := printed(t, arguments, a)
		now, errB := printed(t, arguments, b)
		locked := bytes.Contains(a, []byte("/Encrypt"))
		if arguments[1] != "--password=secret" && locked {
			if !strings.Contains(before, "password") || before != now {
				t.Errorf("%v: %.200q, now %.200q", arguments, before, now)
			}
		} else if errA != nil || errB != nil || before != now {
			t.Errorf("%v: %v %v: %.200q, now %.200q", arguments, errA, errB, before, now)
		}
	}
}

// printed runs a program on a file.
func printed(t *testing.T, arguments []string, file []byte) (string, error) {
	name := filepath.Join(t.TempDir(), "object")
	if err := os.WriteFile(name, file, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(arguments[0], append(arguments[1:], name)...).CombinedOutput()
	return strings.ReplaceAll(string(out), name, "FILE"), err
}

// A password of the owner that is empty opens a document if the user's password comes out of it.
func TestEmptyPasswords(t *testing.T) {
	for name, want := range map[string]bool{"open-128": false, "locked-128": true, "open-256": false, "locked-256": true, "owner-256": false} {
		file, err := os.ReadFile(filepath.Join("testdata", name+".pdf"))
		if err != nil {
			t.Fatal(err)
		}
		l, encrypted := lockOf(file)
		if !encrypted || l.closed() != want {
			t.Errorf("%s: encrypted %t, closed %t", name, encrypted, l.closed())
		}
	}
}

// A hostile document costs no more than its size: each of these would be read again from each of its objects.
func TestHostileDocuments(t *testing.T) {
	for _, part := range []string{"1 0 obj<</A[", "1 0 obj<</A(", "1 0 obj<</A<<", "1 0 obj<</A<", "1 0 obj<<%", "1 0 obj<<>>stream\n", "1 0 obj ", "trailer", "obj", "1 0 obj<</A 0>>"} {
		file := append([]byte("%PDF-1.7\n"), bytes.Repeat([]byte(part), (4<<20)/len(part))...)
		if n := For("application/pdf").Capacity(file); n != 0 {
			t.Errorf("%q: %d", part, n)
		}
	}
}
