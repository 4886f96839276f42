"""What a node tells of itself by topics below ``$gateway``, while somebody watches (ADR 0026).

| topic | value | published |
|---|---|---|
| ``$gateway/nodes/<node>`` | its state: sessions, resumes, grid, lag, who it sees alive | every second |
| ``$gateway/recoveries/<node>`` | resumes by rung over the last quarter of an hour | when there are new ones |
| ``$gateway/activity/<node>`` | what happened to single sessions in the last second | when something did |
| ``$gateway/recent/<node>`` | the same of the last quarter of an hour | when somebody begins to watch, then seldom |
| ``$gateway/slow/<node>`` | sessions whose transport pushes back, the worst first | when it changes |

What is published stays in the grid: whoever opens a console later sees what has happened, and a node that starts again
goes on with the counts of its earlier run (ADR 0088).

They are topics like all others: any node's clients can select them, if they may.
"""
