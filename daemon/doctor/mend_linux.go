package doctor

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ofRoot is where programs of root are looked for.
const ofRoot = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

const commandTime = 30 * time.Second

// carryOut carries commands out that a check made, up to the first that fails.
func carryOut(ctx context.Context, commands []string) (done []string, err error) {
	for _, command := range commands {
		args := strings.Fields(command)
		switch args[0] {
		case "sysctl": // -w KEY=VALUE; the program is not everywhere
			key, value, _ := strings.Cut(args[len(args)-1], "=")
			err = os.WriteFile(filepath.Join("/proc/sys", strings.ReplaceAll(key, ".", "/")), []byte(value+"\n"), 0)
		case "modprobe", "mkdir", "mknod", "chgrp", "chmod", "ufw", "firewall-cmd":
			_, err = output(ctx, args...)
		default:
			err = fmt.Errorf("kithd does not run %s", args[0])
		}
		if err != nil {
			return done, fmt.Errorf("%s: %w", command, err)
		}
		done = append(done, command)
	}
	return done, nil
}

// output runs a program of root, in English, and gives what it wrote.
func output(ctx context.Context, args ...string) (string, error) {
	path, err := programOf(args[0])
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args[1:]...)
	cmd.Env = []string{"LC_ALL=C", "PATH=" + ofRoot}
	cmd.WaitDelay = time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		said := strings.Join(strings.Fields(errs.String()+" "+out.String()), " ")
		return out.String(), fmt.Errorf("%w: %.300s", err, said)
	}
	return out.String(), nil
}

// programOf finds a program where those of root are, whatever PATH says.
func programOf(name string) (string, error) {
	for dir := range strings.SplitSeq(ofRoot, ":") {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, exec.ErrNotFound)
}

// setByOwner names the file in which the owner gives a sysctl (in dots) a value below least: what is meant is not to be undone.
func setByOwner(key string, least int) (file string) {
	files, _ := filepath.Glob("/etc/sysctl.d/*.conf")
	for _, path := range append(files, "/etc/sysctl.conf") {
		eachLine(path, func(line string) {
			name, value, ok := strings.Cut(strings.TrimPrefix(line, "-"), "=")
			if !ok || strings.ReplaceAll(strings.TrimSpace(name), "/", ".") != key {
				return
			}
			if n, err := strconv.Atoi(strings.TrimSpace(value)); err == nil && n < least {
				file = path
			}
		})
	}
	return file
}

// forbidden names the file in which the owner keeps a module from being loaded.
func forbidden(module string) (file string) {
	files, _ := filepath.Glob("/etc/modprobe.d/*.conf")
	for _, path := range files {
		eachLine(path, func(line string) {
			f := strings.Fields(line)
			if len(f) >= 2 && (f[0] == "blacklist" || f[0] == "install") && strings.ReplaceAll(f[1], "-", "_") == module {
				file = path
			}
		})
	}
	return file
}

func eachLine(path string, do func(line string)) {
	text, err := os.ReadFile(path)
	if err != nil {
		return
	}
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		if line := strings.TrimSpace(s.Text()); line != "" && line[0] != '#' && line[0] != ';' {
			do(line)
		}
	}
}
