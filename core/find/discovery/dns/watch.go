package dns

import (
	"context"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/fsnotify/fsnotify"
)

// watchResolvConf has everything asked anew when this machine gets other name servers, until ctx ends. It is often a link to what another
// program writes, and is replaced rather than written; so its folders are watched.
func (f *Finder) watchResolvConf(ctx context.Context) {
	if len(f.ask.servers) > 0 || runtime.GOOS != "linux" { // elsewhere a folder is watched by opening all files in it
		return
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		f.log.Warn("changes of the name servers are seen at the next look-up only", "err", err)
		return
	}
	defer watcher.Close()
	before, _ := nameServers()
	files := watchFiles(watcher, nil)
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-watcher.Errors:
			if !ok {
				return
			}
		case e, ok := <-watcher.Events:
			if !ok {
				return
			}
			if !slices.Contains(files, e.Name) {
				continue
			}
			files = watchFiles(watcher, files)
			now, err := nameServers()
			if err == nil && !slices.Equal(before, now) { // while it is written there are none
				before = now
				f.Again()
			}
		}
	}
}

// watchFiles watches the folders of resolv.conf and of what it is a link to, and gives both.
func watchFiles(watcher *fsnotify.Watcher, before []string) []string {
	files := []string{resolvConf}
	if to, err := filepath.EvalSymlinks(resolvConf); err == nil && to != resolvConf {
		files = append(files, to)
	}
	for _, f := range files {
		if !slices.Contains(before, f) {
			_ = watcher.Add(filepath.Dir(f)) // that it is there already is no error
		}
	}
	return files
}
