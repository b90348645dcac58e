package daemon

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// forgetProgram takes the program's own pages out of the page tables: most were needed at the start only, and nothing else
// would tell the kernel so. They stay in its cache, as anybody's to evict; those that are needed come back by a soft fault.
func forgetProgram() {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var from, to uintptr
		var may string
		// Only what was never written: a private page that was would be lost.
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &may); err == nil && may[1] == '-' && strings.HasSuffix(lines.Text(), " "+self) {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED)
		}
	}
}
