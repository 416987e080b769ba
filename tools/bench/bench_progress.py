"""How far a benchmark is: a bar on a terminal, and a line a step elsewhere, where a bar would be silent to its end."""

from __future__ import annotations

import time

from rich.progress import Progress, TaskID


class Steps(Progress):
    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        super().advance(task_id, advance)
        if not self.console.is_terminal:
            task = self.tasks[self.task_ids.index(task_id)]
            done = f"{task.completed:.0f} of {task.total:.0f}"
            self.console.print(f"{time.strftime('%H:%M:%S')} {task.description}: {done}", soft_wrap=True)
