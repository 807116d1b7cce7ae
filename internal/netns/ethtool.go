package netns

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ChecksumsInSoftware switches the checksum offload of a device off (ethtool -K DEVICE tx off).
func ChecksumsInSoftware(device string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	const setTransmitChecksums = 0x17 // ETHTOOL_STXCSUM
	value := struct{ command, data uint32 }{setTransmitChecksums, 0}
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value)}
	copy(request.name[:], device)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return fmt.Errorf("ethtool -K %s tx off: %w", device, errno)
	}
	return nil
}
