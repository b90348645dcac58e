package memory

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// forgetProgram takes the program's own pages out of the page tables: most were needed at the start only, and nothing else
// would tell the kernel so. They stay in its cache, as anybody's to evict; those that are needed come back by a soft fault.
// Parts that were ever written are left alone, for what was written would be lost: in a position-independent program also some
// that can only be read now, since the addresses in them were put there at the start.
func forgetProgram() {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer maps.Close()
	var from, to uintptr
	ours := false
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		line := lines.Text()
		if written, ok := strings.CutPrefix(line, "Anonymous:"); ok {
			if ours && strings.TrimSpace(written) == "0 kB" {
				_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED)
			}
			continue
		}
		var begin, end uintptr
		var may string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &begin, &end, &may); err == nil {
			from, to, ours = begin, end, may[1] == '-' && strings.HasSuffix(line, " "+self)
		}
	}
}
