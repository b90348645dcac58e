// Package browser shows a page in the browser of this desktop's user. It must never be given an address that came from a peer.
package browser

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// settles is how long a program that fails to start may take to say so. One that goes on is taken to have worked.
const settles = 3 * time.Second

// ErrNoDesktop: this session has no screen.
var ErrNoDesktop = errors.New("there is no desktop in this session")

// Open has the browser show url. It goes on without this program.
func Open(url string) error { return open(runtime.GOOS, os.Getenv, url) }

func open(system string, getenv func(string) string, url string) error {
	// On a Mac all users see the arguments of all programs, and nobody asks there whose a connection is; the script comes by its input.
	list, script := [][]string{{"osascript", "-"}}, `open location "`+url+`"`
	if system != "darwin" {
		if getenv("DISPLAY") == "" && getenv("WAYLAND_DISPLAY") == "" {
			return ErrNoDesktop
		}
		list, script = [][]string{{"xdg-open", url}, {"gio", "open", url}}, ""
	}
	var tried []string
	for _, args := range list {
		path, err := exec.LookPath(args[0])
		if err == nil {
			err = start(path, args[1:], script)
		}
		if err == nil {
			return nil
		}
		tried = append(tried, fmt.Sprintf("%s: %v", args[0], err))
	}
	return fmt.Errorf("no program shows a page here: %s", strings.Join(tried, "; "))
}

func start(path string, args []string, input string) error {
	cmd := exec.Command(path, args...)
	cmd.Stdin = strings.NewReader(input)
	cmd.Dir, _ = os.UserHomeDir()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(settles):
		return nil
	}
}
