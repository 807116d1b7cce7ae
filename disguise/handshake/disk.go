package handshake

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"heddle/internal/atomicfile"
	"heddle/internal/filelock"
	"heddle/path"
)

// disk is the directory of a replay cache. It has a file for each slot, and the file floor. A file has a first line and then records; a
// process that is killed leaves at most a cut record at its end. The records survive the process at once, and a crash of the
// system once it wrote them out, usually within 30 seconds.
type disk struct {
	dir    string
	closed bool
}

const (
	slotPrefix = "seen-"
	floorName  = "floor"
	slotMagic  = "heddle replay 1\n"
	recordSize = len(record{})
)

// OpenReplays reads or creates the replay cache of a bridge in a directory of its own. One process at a time may use it.
func OpenReplays(dir string, now time.Time) (*Replays, error) {
	r := &Replays{disk: &disk{dir: dir}}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, r.disk.failed(err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, r.disk.failed(err)
	}
	if err := filelock.Try(lock); err != nil {
		lock.Close()
		return nil, &path.Error{What: "replay cache " + dir, Why: "cannot be locked", Err: err, Hint: "another bridge uses this directory: stop it, or name another"}
	}
	r.lock = lock
	if err := r.load(now); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// load reads all slots, and writes the floor once, to learn now whether writing works.
func (r *Replays) load(now time.Time) error {
	floor, err := r.disk.floor()
	if err != nil {
		return err
	}
	if floor*slotSeconds > now.Add(MaxSkew).Unix() {
		return &path.Error{What: "replay cache " + r.disk.dir, Why: fmt.Sprintf("it already forgot messages of %s, but the clock shows %s",
			time.Unix(floor*slotSeconds, 0).UTC().Format(time.DateTime), now.UTC().Format(time.DateTime)),
			Hint: "set the clock; if it was wrong before, delete the directory, with which messages of the last three hours can be replayed"}
	}
	if err := r.disk.setFloor(floor); err != nil {
		return err
	}
	r.floor = floor
	entries, err := os.ReadDir(r.disk.dir)
	if err != nil {
		return r.disk.failed(err)
	}
	for _, entry := range entries {
		text, ok := strings.CutPrefix(entry.Name(), slotPrefix)
		number, err := strconv.ParseInt(text, 10, 64)
		if !ok || err != nil {
			continue
		}
		if number < floor {
			r.disk.remove(nil, number)
			continue
		}
		if err := r.loadSlot(number); err != nil {
			return err
		}
	}
	return nil
}

func (r *Replays) loadSlot(number int64) error {
	file := r.disk.slotName(number)
	f, err := os.Open(file)
	if err != nil {
		return r.disk.failed(err)
	}
	defer f.Close()
	s := r.slot(number)
	size, err := readRecords(f, maxSeen-r.total, func(one record) { s.seen[one] = struct{}{} })
	if err != nil {
		return &path.Error{What: "replay cache " + file, Why: "cannot be used", Err: err,
			Hint: "delete the directory, with which messages of the last three hours can be replayed"}
	}
	r.total += len(s.seen)
	s.file = &slotFile{name: file, size: size}
	return nil
}

// readRecords reads a slot's file and returns the size of its whole records. A cut one at the end does not count.
func readRecords(from io.Reader, atMost int, each func(record)) (size int64, err error) {
	magic := make([]byte, len(slotMagic))
	n, err := io.ReadFull(from, magic)
	switch {
	case string(magic[:n]) != slotMagic[:n]:
		return 0, errors.New("it is no replay cache of this version")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return 0, nil
	case err != nil:
		return 0, err
	}
	size = int64(len(slotMagic))
	buffered := make([]byte, 1024*recordSize)
	for {
		n, err := io.ReadFull(from, buffered)
		for b := buffered[:n]; len(b) >= recordSize; b = b[recordSize:] {
			if atMost--; atMost < 0 {
				return 0, errors.New("it is too large")
			}
			each(record(b))
			size += int64(recordSize)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return size, nil
		} else if err != nil {
			return 0, err
		}
	}
}

func (d *disk) slotName(number int64) string {
	return filepath.Join(d.dir, slotPrefix+strconv.FormatInt(number, 10))
}

// failed explains an error of the file system.
func (d *disk) failed(err error) error {
	return &path.Error{What: "replay cache " + d.dir, Why: "cannot be written", Err: err,
		Hint: "make the directory writable and free space on its disk, or name another; until then the bridge answers nobody"}
}

func (d *disk) floor() (int64, error) {
	file := filepath.Join(d.dir, floorName)
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	} else if err != nil {
		return 0, d.failed(err)
	}
	floor, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || floor < 0 || floor > 1<<40 {
		return 0, &path.Error{What: "replay cache " + file, Why: "it holds no number",
			Hint: "delete the directory, with which messages of the last three hours can be replayed"}
	}
	return floor, nil
}

func (d *disk) setFloor(floor int64) error {
	if d.closed {
		return d.failed(fs.ErrClosed)
	}
	if err := atomicfile.WritePrivate(filepath.Join(d.dir, floorName), []byte(strconv.FormatInt(floor, 10)+"\n")); err != nil {
		return d.failed(err)
	}
	return nil
}

// remove leaves a file that it cannot remove to the next start: the slot is below the floor.
func (d *disk) remove(s *slot, number int64) {
	if s != nil {
		_ = s.file.close()
	}
	_ = os.Remove(d.slotName(number))
}

// keep appends one record.
func (d *disk) keep(s *slot, number int64, one record) error {
	if d.closed {
		return d.failed(fs.ErrClosed)
	}
	if s.file == nil {
		s.file = &slotFile{name: d.slotName(number)}
	}
	if err := s.file.append(one); err != nil {
		return d.failed(err)
	}
	return nil
}

// slotFile is the file of one slot.
type slotFile struct {
	name string
	size int64 // of its whole records; 0 is without the first line
	file *os.File
}

// append writes at the end of the whole records, so that it overwrites one that was cut.
func (f *slotFile) append(one record) error {
	if f.file == nil {
		file, err := os.OpenFile(f.name, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		f.file = file
	}
	b := one[:]
	if f.size == 0 {
		b = append([]byte(slotMagic), b...)
	}
	if _, err := f.file.WriteAt(b, f.size); err != nil {
		return err
	}
	f.size += int64(len(b))
	return nil
}

func (f *slotFile) close() error {
	if f == nil || f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}
