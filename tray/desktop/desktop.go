// Package desktop is what the tray does outside of the panel: the clipboard, a terminal, a text in the user's editor. All of it is
// other programs; which one is there is found out when it is needed. It must never run anything that came from a peer.
package desktop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	// settles is how long a program that fails to start may take to say so.
	settles = 300 * time.Millisecond
	// copies is how long a clipboard program may take.
	copies = 5 * time.Second
)

// Desktop starts programs for the user.
type Desktop struct {
	getenv func(string) string
	dir    string        // the user's own, for files that others must not read
	system string        // runtime.GOOS
	reads  time.Duration // how long a window is up at least before somebody can have read it
}

// New makes a Desktop; getenv is os.Getenv.
func New(getenv func(string) string) *Desktop {
	d := &Desktop{getenv: getenv, system: runtime.GOOS, reads: settles}
	base := getenv("XDG_RUNTIME_DIR") // in memory, and gone with the session
	if base == "" {
		if cache, err := os.UserCacheDir(); err == nil {
			base = cache
		} else {
			base = os.TempDir()
		}
	}
	d.dir = filepath.Join(base, "kith")
	return d
}

// program is one way to do something: it counts when the variable of the environment is set.
type program struct {
	needs string
	args  []string
}

var clipboards = []program{
	{"WAYLAND_DISPLAY", []string{"wl-copy"}},
	{"DISPLAY", []string{"xclip", "-selection", "clipboard"}},
	{"DISPLAY", []string{"xsel", "--clipboard", "--input"}},
}

// Copy puts text on the clipboard. Where no program can, it is in a file that only the user can read, and file names it.
func (d *Desktop) Copy(ctx context.Context, name string, text []byte) (file string, err error) {
	list := clipboards
	if d.system == "darwin" {
		list = []program{{"", []string{"pbcopy"}}}
	}
	for _, p := range list {
		if p.needs != "" && d.getenv(p.needs) == "" {
			continue
		}
		if _, err := exec.LookPath(p.args[0]); err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, copies)
		// No pipes for its output: it stays behind to serve the clipboard, and would keep them open.
		cmd := exec.CommandContext(ctx, p.args[0], p.args[1:]...)
		cmd.Stdin = bytes.NewReader(text)
		err = cmd.Run()
		cancel()
		if err == nil {
			return "", nil
		}
	}
	return d.Keep(name, text, 0o600)
}

// Keep writes a file for the user alone and gives its path.
func (d *Desktop) Keep(name string, text []byte, mode os.FileMode) (path string, err error) {
	path = filepath.Join(d.dir, name)
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return "", fmt.Errorf("keep %s: %w", name, err)
	}
	// Made anew with its mode, and renamed: it was never readable by others, and is never half there.
	f, err := os.CreateTemp(d.dir, "."+name+"-*")
	if err != nil {
		return "", fmt.Errorf("keep %s: %w", name, err)
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(mode), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return "", fmt.Errorf("keep %s: %w", name, err)
	}
	return path, nil
}

// Save writes a file where the user looks for what was downloaded, else in the home folder, for the user alone. One that is there
// already is an error.
func (d *Desktop) Save(name string, text []byte) (path string, err error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("save %s: %w", name, err)
	}
	dir := filepath.Join(home, "Downloads")
	if out, err := exec.Command("xdg-user-dir", "DOWNLOAD").Output(); err == nil && filepath.IsAbs(strings.TrimSpace(string(out))) {
		dir = strings.TrimSpace(string(out))
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		dir = home
	}
	path = filepath.Join(dir, name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", fmt.Errorf("save %s: %w", name, err)
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(path)
		return "", fmt.Errorf("save %s: %w", name, err)
	}
	return path, nil
}

// View shows a text. The path is where it is, also when nothing can show it.
func (d *Desktop) View(name string, text []byte) (path string, err error) {
	if path, err = d.Keep(name, text, 0o600); err != nil {
		return "", err
	}
	list := [][]string{{"xdg-open", path}, {"gio", "open", path}}
	if d.system == "darwin" {
		list = [][]string{{"open", "-t", path}}
	}
	return path, d.first(list, nil)
}

// Terminal opens a terminal in which kubectl talks to the cluster of kubeconfig.
func (d *Desktop) Terminal(kubeconfig []byte) error {
	path, err := d.Keep("kubeconfig", kubeconfig, 0o600)
	if err != nil {
		return err
	}
	if d.system == "darwin" { // its Terminal takes no environment along
		script := "#!/bin/sh\nexport KUBECONFIG='" + strings.ReplaceAll(path, "'", `'\''`) + "'\nexec \"$SHELL\" -l\n"
		command, err := d.Keep("terminal.command", []byte(script), 0o700)
		if err != nil {
			return err
		}
		return d.first([][]string{{"open", command}}, nil)
	}
	var list [][]string
	for _, name := range []string{
		d.getenv("TERMINAL"), "x-terminal-emulator", "xdg-terminal-exec", "gnome-terminal", "kgx", "konsole", "xfce4-terminal",
		"alacritty", "kitty", "foot", "xterm",
	} {
		if name != "" {
			list = append(list, d.terminal(name))
		}
	}
	return d.first(list, []string{"KUBECONFIG=" + path})
}

// terminal is the command line of a terminal. The one of Xfce opens its windows in a process that has another environment
// unless it is told not to.
func (d *Desktop) terminal(name string) []string {
	path, err := exec.LookPath(name)
	if err != nil {
		return []string{name}
	}
	if real, err := filepath.EvalSymlinks(path); err == nil && strings.Contains(filepath.Base(real), "xfce4-terminal") {
		return []string{name, "--disable-server"}
	}
	return []string{name}
}

// first starts the first of the commands that is there and does not fail at once. It goes on without the tray.
func (d *Desktop) first(commands [][]string, env []string) error {
	var tried []string
	for _, args := range commands {
		path, err := exec.LookPath(args[0])
		if err != nil {
			tried = append(tried, args[0])
			continue
		}
		cmd := exec.Command(path, args[1:]...)
		cmd.Env = append(os.Environ(), env...)
		cmd.Dir, _ = os.UserHomeDir()
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err = cmd.Start(); err != nil {
			tried = append(tried, args[0]+" ("+err.Error()+")")
			continue
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case err = <-ended:
		case <-time.After(settles):
		}
		if err == nil {
			return nil
		}
		tried = append(tried, args[0]+" ("+err.Error()+")")
	}
	return fmt.Errorf("no program for it works here; tried %s", strings.Join(tried, ", "))
}
