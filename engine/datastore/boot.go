package datastore

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"kith.dev/core/base/durable"
)

// A commit waits for the kernel, not for the disk: where the power fails, the newest revisions may be gone. Their numbers were told all the
// same, to clients that outlive it: a peer's kithd, a company's controllers, kubectl on another machine. Were the numbers given again, to
// other changes, such a client would go on watching from one of them and never hear of what came below it. etcd has the same trouble when it
// is restored from a backup, and the same way out (etcdutl snapshot restore --bump-revision --mark-compacted): the first opening in a boot
// takes a step over all numbers that may have been lost, and what was before it counts as compacted.

// bootStep is more than the revisions that can be lost: those of a log that was not synced, of which SQLite keeps logBackstop, and one is a
// page at least.
const bootStep = 1_000_000

// bootIDFile has what the kernel calls this boot: random(4).
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// inNewBoot takes the step if the database was last opened in another boot, unless it was just made, and notes this boot in the folder beside
// it. It must come before anybody reads or writes.
func (u *upkeep) inNewBoot(ctx context.Context, dir string, boot []byte, made bool) error {
	note := filepath.Join(dir, "boot")
	if was, err := os.ReadFile(note); err == nil && boot != nil && bytes.Equal(was, boot) {
		return nil
	}
	if !made {
		if err := u.step(ctx); err != nil {
			return fmt.Errorf("step over the revisions of the boot before: %w", err)
		}
	}
	return u.reserve.spend(func() error { return durable.WriteFile(note, boot, 0o600) })
}

// step makes a revision of nothing the newest, far above what is there, compacts all below it, and returns when that is on the disk.
func (u *upkeep) step(ctx context.Context) error {
	var newest, compacted int64
	err := u.db.QueryRowContext(ctx, `SELECT (SELECT COALESCE(MAX(id), 0) FROM kine),
		(SELECT COALESCE(MAX(prev_revision), 0) FROM kine WHERE name = 'compact_rev_key')`).Scan(&newest, &compacted)
	if err != nil {
		return err
	}
	if err := u.store.Fill(ctx, newest+bootStep); err != nil {
		return err
	}
	if err := u.reserve.spend(func() error { return u.compactBatch(ctx, compacted, newest+bootStep-1) }); err != nil {
		return err
	}
	return u.checkpoint(ctx, logLarge)
}
